"""Where things of the tests lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
CLIENTS = ROOT / "tests" / "support" / "clients"
