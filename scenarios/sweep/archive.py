"""The package as a zip for Spark executors on other machines; executor.py sends it before a job.

Executors must simulate with the same code as the driver, so they get the driver's own files. The
packages that Wavetank depends on must be installed there.
"""

import atexit
import shutil
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Final
from zipfile import ZipFile

from pyspark.sql import SparkSession

PACKAGE: Final = Path(__file__).absolute().parents[2]  # __file__ is relative inside a zip


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run on this machine, in processes that the driver started."""
    return (spark.conf.get("spark.master", "") or "").startswith("local")


def ship(spark: SparkSession) -> None:
    """Send the package to the executors, unless they are local."""
    if not is_local(spark):
        spark.addArtifacts(str(_archive()), pyfile=True)


@cache
def _archive() -> Path:
    """The zip of this process. Only one is built: Spark refuses a known name from another path.

    It is kept until the process ends, because an executor can start and fetch it at any time.
    """
    folder = mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_archive(Path(folder))


def build_archive(folder: Path) -> Path:
    """Write the zip; its name contains a digest of its content, because Spark caches by name."""
    files = package_files()
    content = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    archive = folder / f"wavetank-{content}.zip"
    with ZipFile(archive, "w") as opened:
        for path in files:
            opened.write(path, Path("wavetank") / path.relative_to(PACKAGE))
    return archive


def package_files() -> list[Path]:
    """All files of the package: its root modules, and every subpackage with its data files.

    A checkout is the package itself and has other folders beside the subpackages, such as tests
    and environments. Those have no `__init__.py`.
    """
    found = [*PACKAGE.glob("*.py"), PACKAGE / "py.typed"]
    for room in PACKAGE.glob("*/__init__.py"):
        found += (path for path in room.parent.rglob("*") if path.is_file())
    return sorted(path for path in found if "__pycache__" not in path.parts)
