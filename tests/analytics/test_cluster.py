"""A report computed on a Spark cluster: a standalone master and two workers on loopback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wavetank as wt
from helpers.short_runs import quick
from helpers.spark_cluster import standalone
from wavetank.scenarios import reports


# Five Java processes start on one machine.
@pytest.mark.timeout(400)
def test_a_spark_cluster_gives_the_same_report_as_one_machine(spark: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    wt.run(
        quick(duration=5, timeline=[wt.actions.Crash(at=2, target="billing-1", for_=1)]), out=run
    )
    with standalone(tmp_path) as cluster:
        words = [sys.executable, "-m", "wavetank.cli", "report", str(run), "--json"]
        done = subprocess.run(
            [*words, "--master", cluster.master], capture_output=True, text=True, timeout=330,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    here = reports.report([run]).to_dict()
    assert json.loads(done.stdout) == json.loads(json.dumps(here))
