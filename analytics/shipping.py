"""What executors must have before they can run what is not Spark's: this package, as it is here."""

import atexit
import shutil
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Final
from zipfile import ZipFile

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_PACKAGE: Final = Path(__file__).absolute().parents[1]  # relative where it was sent as a zip
_ROOMS: Final = ("actors", "analytics", "model", "strategies")
_CONNECT_CORES: Final = 8


def is_local(spark: SparkSession) -> bool:
    """Whether everything runs on this machine, in processes that this one started."""
    return (spark.conf.get("spark.master", "") or "").startswith("local")


def cores(spark: SparkSession) -> int:
    """How many tasks can run at once; a guess where Spark Connect does not say."""
    try:
        spark.range(1).count()  # A cluster's executors have come when something has run on them.
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return _CONNECT_CORES


def ship(spark: SparkSession) -> None:
    """Let executors elsewhere import this very package; what it needs must be installed there."""
    if not is_local(spark):
        spark.addArtifacts(str(_archive()), pyfile=True)


@cache
def _archive() -> Path:
    """The one zip of this process: Spark refuses the same name at another place.

    It stays as long as the process, for executors may come for it at any time.
    """
    folder = mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return packed(Path(folder))


def packed(folder: Path) -> Path:
    """A zip of the package with its data files, named by what is in it: Spark keeps old names."""
    rooms = [_PACKAGE, *(_PACKAGE / room for room in _ROOMS)]
    files = [
        path
        for room in rooms
        for path in sorted(room.iterdir())
        if path.suffix in (".py", ".properties", ".typed") or path.name == "template.toml"
    ]
    content = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    archive = folder / f"wavetank-{content}.zip"
    with ZipFile(archive, "w") as opened:
        for path in files:
            opened.write(path, Path("wavetank") / path.relative_to(_PACKAGE))
    return archive
