"""`./x bench [NAME] [--quick] [--json] [--prepare]`."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benches.measuring import Bench, machine, refuse_debug_build, versions
from benches.preparing import prepare

BENCHES = ("rrf", "copy", "tokens", "embed", "rerank", "query")
STATE = Path(__file__).resolve().parent.parent / ".state" / "bench"


def main() -> int:
    """Runs one benchmark, or all; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="./x bench", description="Measure semlex beside its baselines.")
    parser.add_argument("name", nargs="?", choices=BENCHES, help="one benchmark; default: all")
    parser.add_argument("--quick", action="store_true", help="smaller, at most 45 seconds each")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of each")
    parser.add_argument("--prepare", action="store_true", help="make the baselines' environments, then stop")
    options = parser.parse_args()
    refuse_debug_build()
    STATE.mkdir(parents=True, exist_ok=True)
    if options.prepare:
        prepare(STATE)
        return 0
    print(f"{machine()}\n{versions()}")
    met = True
    for name in [options.name] if options.name else BENCHES:
        print(f"{name}{' (quick)' if options.quick else ''}")
        bench = Bench(name)
        importlib.import_module(f"benches.{name}").run(bench, quick=options.quick, state=STATE)
        met &= bench.finish(as_json=options.json)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
