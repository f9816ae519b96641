"""The programs that run in environments of other libraries, which `./x test --framework moving_in` makes."""

import subprocess
from pathlib import Path

import numpy as np

from tests.support.folders import ROOT

PROGRAMS = Path(__file__).parent / "programs"


def output_of(environment, *arguments, folder="."):
    """What a program prints in an environment, which has the name of its file in `environments/`."""
    python = ROOT / ".state" / "frameworks" / f"moving_in-{environment}" / "bin" / "python"
    command = [str(python), "-W", "ignore", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def bytes_of(vector, kind=np.float32):
    """A vector as Postgres sends it."""
    return len(vector).to_bytes(2, "big") + bytes(2) + np.array(vector, kind).astype(">f4").tobytes()
