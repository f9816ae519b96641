"""`./x bench [NAME] [--quick] [--million] [--keep | --no-keep] [--json]`, `./x bench --prepare` and `--figures`.

With quality, calibration, peers and support `--data FOLDER`; with recall `--data FILE`; with quality, structure and
support `--model FOLDER`; with structure `--terms FILE`; with onnx `--model-folder FOLDER`; with embed, rerank and query
`--device NAME`; with follow `--rows N`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benches import BENCHES, figures, kept_runs
from benches.measuring import Bench, machine, refuse_debug_build, versions
from benches.preparing import prepare
from semlex.models.local.device import DEVICES

if TYPE_CHECKING:
    from collections.abc import Sequence

STATE = kept_runs.ROOT / ".state" / "bench"
OWN_OPTIONS = {
    "quality": ("data", "model"),
    "structure": ("model", "terms"),
    "calibration": ("data",),
    "recall": ("data",),
    "support": ("data", "model"),
    "peers": ("data",),
    "onnx": ("model_folder",),
    "embed": ("device",),
    "rerank": ("device",),
    "query": ("device",),
    "follow": ("rows",),
}
WITH_MILLION = ("bm25", "ingest", "load", "peers", "ray", "scale")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark, or all; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="./x bench", description="Measure semlex beside its baselines.")
    parser.add_argument("name", nargs="?", choices=BENCHES, help="one benchmark; default: all")
    parser.add_argument("--quick", action="store_true", help="smaller, at most 45 seconds each")
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        help="keep the run in benches/results and write docs/reference/figures.md; default: unless --quick",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of each")
    parser.add_argument("--prepare", action="store_true", help="make environments, corpus and tokenizer, then stop")
    parser.add_argument(
        "--figures", action="store_true", help="write docs/reference/figures.md from the kept runs, then stop"
    )
    parser.add_argument(
        "--million",
        action="store_true",
        help="bm25: also a million chunks, half an hour long; peers, ray: a million; scale: ten "
        "million, two hours long; ingest, load: also memory",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="quality, calibration, peers, support: folder of judged sets; recall: JSON file of texts",
    )
    parser.add_argument("--terms", type=Path, help="structure: file of recorded terms, a line for each question")
    parser.add_argument("--rows", help="follow: rows of the table instead of 100,000")
    parser.add_argument("--model-folder", help="onnx: folder of an embedding model with an ONNX file")
    parser.add_argument("--device", choices=DEVICES, help="embed, rerank, query: where models run; default: cpu")
    parser.add_argument("--model", help="quality: an embedding model to measure as well; structure, support: instead")
    options = parser.parse_args(arguments)
    if options.figures:
        figures.write()
        return 0
    refuse_debug_build()
    STATE.mkdir(parents=True, exist_ok=True)
    if options.prepare:
        prepare(STATE)
        return 0
    print(f"{machine()}\n{versions()}")
    met = True
    for name in [options.name] if options.name else BENCHES:
        print(f"{name}{' (quick)' if options.quick else ''}")
        met &= measure(name, options)
    return 0 if met else 1


def measure(name: str, options: argparse.Namespace) -> bool:
    """Runs one benchmark to its end, then keeps it; True when no bar was missed."""
    recording = kept_runs.Recording(*variant_and_command(name, options))
    bench = Bench(name, million=options.million)
    own = {option: getattr(options, option) for option in OWN_OPTIONS.get(name, ())}
    importlib.import_module(f"benches.{name}").run(bench, quick=options.quick, state=STATE, **own)
    met = bench.finish(as_json=options.json)
    if options.keep or (options.keep is None and not options.quick):
        run = recording.run(bench)
        if reason := kept_runs.obstacle(run):
            print(f"the run of {name} is not kept: {reason}", file=sys.stderr)
        else:
            path = kept_runs.keep(run)
            figures.write()
            print(f"kept in {path}; {figures.PAGE} is written", file=sys.stderr)
    return met


def variant_and_command(name: str, options: argparse.Namespace) -> tuple[str, str]:
    """What tells a run from others of the same bench, and what was typed; of folders their names."""
    environment = [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith("SEMLEX_BENCH_")]
    chosen = ["quick"] if options.quick else []
    chosen += ["million"] if options.million and name in WITH_MILLION else []
    own = {option: getattr(options, option) for option in OWN_OPTIONS.get(name, ())}
    chosen += [f"{option.replace('_', '-')} {Path(value).name}" for option, value in own.items() if value is not None]
    command = [*environment, "./x bench", name, *(f"--{option}" for option in chosen)]
    return " ".join([*environment, *chosen]) or kept_runs.FULL, " ".join(command)


if __name__ == "__main__":
    sys.exit(main())
