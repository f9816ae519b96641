"""`./x bench [NAME] [--quick] [--million] [--json] [--prepare]`.

With quality and calibration `--data FOLDER`, with quality and structure `--model FOLDER`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benches.measuring import Bench, machine, refuse_debug_build, versions
from benches.preparing import prepare

BENCHES = (
    "rrf",
    "copy",
    "load",
    "moving",
    "tokens",
    "chunk",
    "embed",
    "rerank",
    "query",
    "analyzer",
    "bm25",
    "search",
    "index",
    "throughput",
    "filters",
    "ingest",
    "quality",
    "structure",
    "answers",
    "calibration",
    "checkup",
    "enrich",
    "first_minute",
    "faces",
    "serve",
    "assistants",
    "spans",
)
STATE = Path(__file__).resolve().parent.parent / ".state" / "bench"


def main() -> int:
    """Runs one benchmark, or all; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="./x bench", description="Measure semlex beside its baselines.")
    parser.add_argument("name", nargs="?", choices=BENCHES, help="one benchmark; default: all")
    parser.add_argument("--quick", action="store_true", help="smaller, at most 45 seconds each")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of each")
    parser.add_argument("--prepare", action="store_true", help="make environments, corpus and tokenizer, then stop")
    parser.add_argument(
        "--million",
        action="store_true",
        help="bm25: also a million chunks, half an hour long; ingest, load: also memory",
    )
    parser.add_argument("--data", type=Path, help="quality, calibration: folder of judged sets")
    parser.add_argument("--model", help="quality: an embedding model to measure as well; structure: instead")
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
        bench = Bench(name, million=options.million)
        given = {"quality": ("data", "model"), "structure": ("model",), "calibration": ("data",)}.get(name, ())
        own = {option: getattr(options, option) for option in given}
        importlib.import_module(f"benches.{name}").run(bench, quick=options.quick, state=STATE, **own)
        met &= bench.finish(as_json=options.json)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
