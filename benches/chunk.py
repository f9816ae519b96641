"""Cutting texts.

Manuals are cut into chunks of at most 500 tokens with an overlap of 50, on one core: semlex against
langchain-text-splitters and semantic-text-splitter (Rust), all with one tokenizer file. Only semlex reads
reStructuredText; the others take it as plain text. "Processor" is the ratio of processor times, which says more on a
busy machine. "By the library" is semlex with the tokenizers library, as the others use it.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.preparing import python_of
from benches.structure import MANUALS, unpacked
from benches.training import django_source, texts, tokenizer_file
from semlex import _core
from semlex.ingest.document_chunks import Chunker
from semlex.models.tokenizer import TextTokenizer, TokenEstimate, WordCounter, text_tokenizer
from semlex.options.collection import ChunkSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benches.measuring import Bench
    from semlex.models.tokenizer import TokenCounter

SETTINGS = ChunkSettings(chunk_tokens=500, overlap_tokens=50)
BARS = {"langchain": 20.0, "semantic-text-splitter": 2.0}
# Django's manual is reStructuredText, which only ours reads; the others take it as lines and paragraphs.
STRUCTURES = {"plain": ("plain", "restructuredtext"), "markdown": ("markdown",)}
MARKDOWN_MANUAL = next(manual for manual in MANUALS if manual.format == "Markdown")
# The others take seconds for a megabyte: one page in so many is cut.
EVERY, QUICK_EVERY = {"plain": 4, "markdown": 1}, {"plain": 24, "markdown": 4}
RUNS, QUICK_RUNS = 5, 3


@dataclass(frozen=True, slots=True)
class Cutting:
    """One run of one splitter over all texts; times are seconds."""

    wall: float
    processor: float
    chunks: list[str]


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    python, file = python_of(state, "splitters"), tokenizer_file(state)
    if not (python.exists() and file.exists()):
        for name, bar in BARS.items():
            bench.unmeasured(f"vs {name}", "kB/s", bar, "run ./x bench --prepare")
        return
    pages = {
        "plain": list(texts(django_source(state), (".txt",), "/docs/")),
        "markdown": [page.read_text() for page in sorted(unpacked(MARKDOWN_MANUAL, state).rglob("*.md"))],
    }
    every = QUICK_EVERY if quick else EVERY
    pages = {kind: own[:: every[kind]] for kind, own in pages.items()}
    with others(python, file, pages) as cut_by:
        for kind, own in pages.items():
            compare(bench, kind, own, file, cut_by, QUICK_RUNS if quick else RUNS)


def compare(
    bench: Bench, kind: str, pages: list[str], file: Path, cut_by: Callable[[str, str], Cutting], runs: int
) -> None:
    """Takes the figures of one format; `file` is the tokenizer's."""
    # The library would share a batch among all cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    tokenizer = text_tokenizer(_core.BpeTokenizer(file.read_bytes()), "rust")
    library = text_tokenizer(Tokenizer.from_file(str(file)), "library")
    ours = {structure: cutter(pages, structure, tokenizer) for structure in STRUCTURES[kind]}
    theirs = {name: partial(cut_by, name, kind) for name in BARS}
    last = STRUCTURES[kind][-1]
    with_library = {f"{last} by the library": cutter(pages, last, library)}
    counters = {"words": WordCounter(), "words x 2": TokenEstimate()}
    by_words = {f"{last}, {name}": cutter(pages, last, counter) for name, counter in counters.items()}
    cuttings = timed(ours | theirs | with_library | by_words, runs)
    kilobytes = sum(len(page.encode()) for page in pages) / 1e3
    print(f"  {kind}: {len(pages)} pages, {kilobytes:,.0f} kB", flush=True)
    for name, (other, bar) in product(ours | with_library, BARS.items()):
        fast, slow = cuttings[name], cuttings[other]
        walls = [[cutting.wall for cutting in own] for own in (fast, slow)]
        what = f"{name}, vs {other}"
        bench.speed(what, *walls, amount=kilobytes, unit="kB/s", bar=bar if name in ours else None)
        ratio = statistics.median(b.processor / a.processor for a, b in zip(fast, slow, strict=True))
        bench.at_least(f"{what}, processor", ratio, unit="times", bar=None)
    for name in by_words:
        speed = kilobytes / statistics.median(cutting.wall for cutting in cuttings[name])
        bench.at_least(name, speed, unit="kB/s", bar=None)
    for name in ours:
        tell_chunks(bench, f"{name}, ours", cuttings[name][0].chunks, tokenizer, bar=0)
    for name in theirs:
        tell_chunks(bench, f"{kind}, {name}", cuttings[name][0].chunks, tokenizer, bar=None)


def tell_chunks(bench: Bench, name: str, chunks: list[str], tokenizer: TextTokenizer, bar: float | None) -> None:
    """What a splitter made; `bar` is for the share that is too long."""
    counts = tokenizer.count_tokens(chunks)
    bench.at_most(f"{name}: chunks", len(chunks), unit="chunks", bar=None)
    bench.at_most(f"{name}: length", float(counts.mean()), unit="tokens in the mean", bar=None)
    above = float((counts > SETTINGS.chunk_tokens).mean())
    bench.at_most(f"{name}: above {SETTINGS.chunk_tokens}", above, unit="of chunks", bar=bar)


def timed(contenders: dict[str, Callable[[], Cutting]], runs: int) -> dict[str, list[Cutting]]:
    """Runs of all in turn; the order alternates, and the first round is a warm-up."""
    cuttings: dict[str, list[Cutting]] = {name: [] for name in contenders}
    for number in range(runs + 1):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            cutting = contenders[name]()
            if number:
                cuttings[name].append(cutting)
    return cuttings


def cutter(pages: list[str], structure: str, counter: TokenCounter) -> Callable[[], Cutting]:
    """Ours."""
    chunker = Chunker(counter, SETTINGS)

    def cut() -> Cutting:
        started, processor = time.perf_counter(), time.process_time()
        found = [chunker.cut(page, structure) for page in pages]
        wall, processor = time.perf_counter() - started, time.process_time() - processor
        return Cutting(wall, processor, [chunk.text for own in found for chunk in own.chunks])

    return cut


@contextlib.contextmanager
def others(python: Path, tokenizer: Path, pages: dict[str, list[str]]) -> Iterator[Callable[[str, str], Cutting]]:
    """The other splitters, in a process of their own that holds the texts and cuts when it is asked.

    Args:
        python: Interpreter of their environment.
        tokenizer: The file.
        pages: The texts, by format.

    Yields:
        Cuts all texts with the splitter of a name, as the format of a name.
    """
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "texts.json"
        held.write_text(json.dumps(pages))
        with subprocess.Popen(
            [str(python), "-m", "benches.baselines.splitters"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parent.parent,
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"},
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            to_it, from_it = process.stdin, process.stdout

            def say(line: dict[str, Any]) -> None:
                to_it.write(json.dumps(line) + "\n")
                to_it.flush()

            def cut(splitter: str, kind: str) -> Cutting:
                say({"splitter": splitter, "format": kind})
                return Cutting(*json.loads(from_it.readline()))

            say(
                {
                    "texts": str(held),
                    "tokenizer": str(tokenizer),
                    "tokens": SETTINGS.chunk_tokens,
                    "overlap": SETTINGS.overlap_tokens,
                }
            )
            yield cut
