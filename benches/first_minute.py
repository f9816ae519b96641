"""The first minute.

From an empty environment to the first result of `semlex try docs "which exit codes are there?"`, the steps inside
that, and the medians of fresh processes. The server's processor time is not counted. The bench needs a wheel (`./x
build`).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benches.measuring import Bench

ROOT = Path(__file__).resolve().parent.parent
QUESTION = "which exit codes are there?"
FIRST_HIT_SECONDS = 60.0
IMPORT_MILLISECONDS, HELP_MILLISECONDS = 150.0, 300.0
STEPS = """
import json, sys, time
times, begun = {}, time.perf_counter()
def note(step):
    global begun
    now = time.perf_counter()
    times[step], begun = now - begun, now
from semlex import SyncRetriever
from semlex.store.postgres.embedded.server import EmbeddedServer
note("load the package")
with EmbeddedServer(sys.argv[1]) as server:
    note("make and start the server")
    with SyncRetriever(server.url) as retriever:
        note("make the collection, open the model")
        retriever.index(sys.argv[2])
        note("read, cut, embed and write the files")
        hits = retriever.search(sys.argv[3])
        note("first hit")
assert hits
print(json.dumps(times))
"""


def run(bench: Bench, *, quick: bool, state: Path) -> None:  # noqa: ARG001 - all is thrown away
    """Takes the figures; the environment is made anew and thrown away."""
    wheels = sorted((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        bench.unmeasured("to the first hit", "s", FIRST_HIT_SECONDS, "there is no wheel in dist/: ./x build makes it")
        return
    folder = Path(tempfile.mkdtemp(prefix="semlex-minute-", dir="/tmp")).resolve()
    folder.chmod(0o711)  # as root the server runs under another account
    try:
        _measure(bench, wheels[-1], folder, runs=5 if quick else 21)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(bench: Bench, wheel: Path, folder: Path, *, runs: int) -> None:
    python, program = folder / "venv" / "bin" / "python", folder / "venv" / "bin" / "semlex"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    total = spent = 0.0
    for name, command in (
        ("make an environment", (sys.executable, "-m", "venv", folder / "venv")),
        ("pip install WHEEL[local]", (*pip, f"{wheel}[local]")),
        ("semlex try FOLDER QUESTION", (program, "try", ROOT / "docs", QUESTION, "--data-dir", folder / "tried")),
    ):
        wall, processor = _seconds(folder, *command)
        bench.at_most(name, wall, unit="s", bar=None)
        bench.at_most(f"{name}, processor", processor, unit="s", bar=None)
        total, spent = total + wall, spent + processor
    bench.at_most("to the first hit", total, unit="s", bar=FIRST_HIT_SECONDS)
    bench.at_most("to the first hit, processor", spent, unit="s", bar=None)
    steps = _output(folder, python, "-c", STEPS, folder / "steps", ROOT / "docs", QUESTION)
    for step, seconds in json.loads(steps).items():
        bench.at_most(f"  {step}", seconds, unit="s", bar=None)
    for name, command, bar in (
        ("python -c pass", (python, "-c", "pass"), None),
        ("import semlex", (python, "-c", "import semlex"), IMPORT_MILLISECONDS),
        ("semlex --help", (program, "--help"), HELP_MILLISECONDS),
    ):
        _seconds(folder, *command)
        taken = [_seconds(folder, *command) for _ in range(runs)]
        wall, processor = (1000 * statistics.median(one) for one in zip(*taken, strict=True))
        bench.at_most(name, wall, unit="ms", bar=bar)
        bench.at_most(f"{name}, processor", processor, unit="ms", bar=None)


def _seconds(folder: Path, *command: str | Path) -> tuple[float, float]:
    """Wall and processor seconds of a program."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _output(folder, *command)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _output(folder: Path, *command: str | Path) -> str:
    """What a program prints, that runs as that of a newcomer: in another folder, with no settings of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEMLEX_", "PG", "PYTHON"))}
    environment = kept | {"SEMLEX_KEEP_ALIVE": "0", "HF_HUB_OFFLINE": "1"}
    environment.pop("DATABASE_URL", None)
    arguments: Sequence[str] = [str(part) for part in command]
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:4])} failed: {done.stderr}")
    return done.stdout
