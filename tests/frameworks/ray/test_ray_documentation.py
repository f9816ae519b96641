"""The programs of the page on Ray run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.documented_programs import documented_programs


@pytest.mark.parametrize("program", documented_programs("ray"))
def test_example_runs(program, database_url, cluster):
    environment = {**os.environ, "DATABASE_URL": database_url, "RAY_ADDRESS": cluster}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=False, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
