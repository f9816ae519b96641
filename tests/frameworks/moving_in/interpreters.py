"""The programs that run in environments of other libraries, which `./x test --framework moving_in` makes."""

from pathlib import Path

from tests.support.folders import ROOT

PROGRAMS = Path(__file__).parent / "programs"
ENVIRONMENTS = ROOT / ".state" / "frameworks"


def interpreter(name):
    """The Python of an environment, by the name of its file in `environments/`."""
    return str(ENVIRONMENTS / f"moving_in-{name}" / "bin" / "python")
