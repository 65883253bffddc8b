"""The package as executors elsewhere get it."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

from wavetank.analytics.shipping import packed, ship

SCENARIO = '{"name": "n", "duration": 1, "topics": [{"name": "t"}]}'
PROGRAM = f"""
import wavetank as wt
from wavetank.simulating import simulator
print(wt.__file__, simulator({{}})('{SCENARIO}', None)["digest"])
"""


def test_what_is_sent_is_enough_to_simulate_and_named_by_what_is_in_it(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    first = f"import sys; sys.path.insert(0, {str(archive)!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-c", first + PROGRAM],
        capture_output=True, text=True, timeout=100, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    place, digest = done.stdout.split()
    assert place.startswith(str(archive))
    assert len(digest) > 16
    (tmp_path / "again").mkdir()
    assert packed(tmp_path / "again").name == archive.name


def test_a_second_sweep_sends_the_same_file_and_on_one_machine_nothing_is_sent() -> None:
    # Spark refuses a name that it knows from another place.
    spark = Mock(**{"conf.get.return_value": "spark://there:7077"})
    ship(spark)
    ship(spark)
    first, second = spark.addArtifacts.call_args_list
    assert first == second
    assert Path(first.args[0]).exists()
    near = Mock(**{"conf.get.return_value": "local[2]"})
    ship(near)
    near.addArtifacts.assert_not_called()
