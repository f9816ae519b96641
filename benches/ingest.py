"""Indexing folders.

10,000 pages of documentation are indexed, again with nothing changed, and again with one file changed. "Keywords" has
no vectors. Beside CocoIndex both compute the same static vectors, and semlex also makes its keyword index. Each side
runs once, semlex first: they do not take turns. "Busiest stage" is the share of the time that a large model takes.
`--million` also measures the memory for 5 GB of files.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.documentation import FILES, documentation
from benches.preparing import python_of
from benches.servers import temporary_server, vacuum
from semlex import SyncRetriever
from semlex.ingest import run as file_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from benches.measuring import Bench
    from semlex.ingest.progress import IndexReport

QUICK_FILES = 1_000
SPEED_BAR, UNCHANGED_BAR, ONE_BAR = 15.0, 0.5, 0.3
PEER_BARS = {"first run": 3.0, "nothing changed": 1.0, "one file changed": 1.0}
BUSY_BAR = 0.9
PAGES, SMALL_BATCH = 6, 5
MEMORY_BYTES, MEMORY_FILE_BYTES = 5_000_000_000, 100_000


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    files = QUICK_FILES if quick else FILES
    pages = documentation(state, files)
    megabytes = sum(path.stat().st_size for path in pages.rglob("*") if path.is_file()) / 1e6
    print(f"  {files:,} files, {megabytes:.1f} MB")
    keywords = _runs(pages, "none")
    bench.at_least("keywords, first run", megabytes / keywords["first run"], unit="MB/s", bar=SPEED_BAR)
    bench.at_most("keywords, nothing changed", keywords["nothing changed"], unit="s", bar=UNCHANGED_BAR)
    more = keywords["one file changed"] - keywords["nothing changed"]
    bench.at_most("keywords, one file changed, more", more, unit="s", bar=ONE_BAR)
    _beside_cocoindex(bench, pages, megabytes, state)
    _busiest(bench, pages, state, quick=quick)
    if bench.million:
        _memory(bench, pages, state)


def _runs(pages: Path, model: str) -> dict[str, float]:
    """Seconds of three runs in one process, on a server of their own."""
    with temporary_server() as url, SyncRetriever(url, model, None, use_reranking=False) as retriever:
        seconds = {}
        for name, change in _changes(pages).items():
            change()
            started = time.perf_counter()
            report = retriever.index(pages)
            seconds[name] = time.perf_counter() - started
            _tell(name, report, seconds[name])
            vacuum(url)
        return seconds


def _changes(pages: Path) -> dict[str, Callable[[], None]]:
    """What happens before each run."""
    page = min(path for path in pages.rglob("*.rst") if path.stat().st_size > 10_000)

    def change() -> None:
        with page.open("a", encoding="utf-8") as file:
            file.write("\nOne more line.\n")

    return {"first run": lambda: None, "nothing changed": lambda: None, "one file changed": change}


def _tell(name: str, report: IndexReport, seconds: float) -> None:
    stages = ", ".join(f"{stage} {busy:.2f}" for stage, busy in report.stage_seconds.items())
    counts = f"{report.added} added, {report.changed} changed, {report.unchanged} unchanged, {report.chunks} chunks"
    print(f"    {name}: {seconds:.2f} s ({stages}), {counts}", flush=True)


def _beside_cocoindex(bench: Bench, pages: Path, megabytes: float, state: Path) -> None:
    python = python_of(state, "cocoindex")
    if not python.exists():
        for name, bar in PEER_BARS.items():
            bench.unmeasured(f"beside CocoIndex, {name}", "MB/s", bar, "run ./x bench --prepare")
        return
    ours = _runs(pages, "static")
    own_state = state / "cocoindex-state"
    shutil.rmtree(own_state, ignore_errors=True)
    program = Path(__file__).parent / "baselines" / "cocoindex_ingest.py"
    with temporary_server() as url:
        for name, change in _changes(pages).items():
            change()
            done = subprocess.run(
                [str(python), str(program), str(pages), url, str(own_state)], check=True, capture_output=True, text=True
            )
            theirs: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            print(f"    CocoIndex, {name}: {theirs}", flush=True)
            bench.speed(
                f"beside CocoIndex, {name}",
                [ours[name]],
                [theirs["run_seconds"]],
                amount=megabytes,
                unit="MB/s",
                bar=PEER_BARS[name],
            )
            vacuum(url)
    shutil.rmtree(own_state, ignore_errors=True)


def _busiest(bench: Bench, pages: Path, state: Path, *, quick: bool) -> None:
    """How much of a run the busiest stage takes: with a large model that is the model."""
    from benches import qwen3_shape
    from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder

    folder = qwen3_shape.write_model(state, "embedder", quick=quick)
    print(qwen3_shape.describe(quick=quick))
    model = Qwen3EmbeddingEncoder(str(folder), **qwen3_shape.options(quick=quick))
    model.embed_documents(["warm", "up"])
    part = state / "ingest-part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for number, page in enumerate(_some(pages, PAGES)):
        shutil.copyfile(page, part / f"{number}.rst")
    with temporary_server() as url, SyncRetriever(url, model, None, use_reranking=False) as retriever:
        before, file_run.BATCH_CHUNKS = file_run.BATCH_CHUNKS, SMALL_BATCH  # as many batches as a long run has
        started = time.perf_counter()
        report = retriever.index(part)
        seconds = time.perf_counter() - started
        file_run.BATCH_CHUNKS = before
        _tell("with a large model", report, seconds)
    shutil.rmtree(part)
    busiest = max(report.stage_seconds.values())
    bench.at_least("busiest stage, with a large model", busiest / seconds, unit="of the time", bar=BUSY_BAR)


def _memory(bench: Bench, pages: Path, state: Path) -> None:
    """The peak of a process that indexes 5 GB: files of about 100 kB, each of pages."""
    folder = state / "ingest-5-gb"
    shutil.rmtree(folder, ignore_errors=True)
    texts = [path.read_bytes() for path in sorted(pages.rglob("*.rst"))]
    chance, written, number = random.Random(0), 0, 0
    while written < MEMORY_BYTES:
        parts: list[bytes] = []
        while sum(map(len, parts)) < MEMORY_FILE_BYTES:
            parts.append(chance.choice(texts))
        path = folder / f"{number // 500}" / f"{number}.rst"
        path.parent.mkdir(parents=True, exist_ok=True)
        written += path.write_bytes(b"\n\n".join(parts))
        number += 1
    with temporary_server() as url:
        command = [sys.executable, "-m", "benches.peak_memory", str(folder), url, "index"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    shutil.rmtree(folder)
    before, peak = map(float, done.stdout.split())
    bench.at_most(f"memory for {written / 1e9:.1f} GB, above what is held before", peak - before, unit="MiB", bar=512)


def _some(pages: Path, number: int) -> list[Path]:
    """Pages of middling size."""
    sized = (path for path in sorted(pages.rglob("*.rst")) if 4_000 < path.stat().st_size < 6_000)
    return list(islice(sized, number))
