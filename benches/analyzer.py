"""Terms of texts.

English documentation on one core: Rust against `to_tsvector` of Postgres and bm25s with PyStemmer. "Building" also
writes posting lists. "Known words" are the same texts again, "terms alone" what a query does. bm25s runs after the
others, not in turn.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg

from benches.corpus import corpus_of
from benches.measuring import in_turn
from benches.preparing import python_of
from benches.servers import temporary_server
from semlex import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benches.measuring import Bench

CHUNKS, QUICK_CHUNKS = 20_000, 5_000
BAR, MOONSHOT = 10.0, 100.0
SEGMENT_ID = bytes(15) + b"\1"


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    name = "analysing, vs to_tsvector"
    corpus = corpus_of(state)
    if not corpus.exists:
        bench.unmeasured(name, "MB/s", BAR, "run ./x bench --prepare")
        return
    number, runs = (QUICK_CHUNKS, 3) if quick else (CHUNKS, 7)
    texts = corpus.chunks(number)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    analyzer = _core.Analyzer("english", stop_words=True)
    ids = np.arange(len(texts), dtype=np.int64)

    def analyse(analyzer: _core.Analyzer | None = None) -> _core.SegmentBuilder:
        builder = _core.SegmentBuilder()
        builder.add_texts(analyzer or _core.Analyzer("english", stop_words=True), ids, [texts])
        return builder

    def build() -> None:
        analyse().finish(SEGMENT_ID)

    def known() -> None:
        analyse(analyzer).finish(SEGMENT_ID)

    def terms() -> None:
        for text in texts:
            analyzer.terms(text)

    with temporary_server() as url, psycopg.connect(url, autocommit=True) as connection:
        server = statements(connection, texts)
        contenders: dict[str, Callable[[], object]] = {
            "analyse": analyse,
            "build": build,
            "known": known,
            "terms": terms,
            **server,
        }
        for contender in contenders.values():
            contender()
        times = in_turn(contenders, runs)[1]
    # The server's analysis is what it takes beyond reading the texts.
    theirs = [whole - scan for whole, scan in zip(times["to_tsvector"], times["length"], strict=True)]
    for what, contender, bar in (
        ("analysing", "analyse", BAR),
        ("building", "build", None),
        ("building of known words", "known", None),
        ("terms alone", "terms", None),
    ):
        bench.speed(f"{what}, vs to_tsvector", times[contender], theirs, amount=megabytes, unit="MB/s", bar=bar)
    speed = megabytes / float(np.median(times["analyse"]))
    bench.at_least(f"analysing (hoped for: {MOONSHOT:g})", speed, unit="MB/s", bar=None)
    python = python_of(state, "bm25s")
    if not python.exists():
        bench.unmeasured("analysing, vs bm25s' tokens", "MB/s", None, "run ./x bench --prepare")
        return
    script = Path(__file__).parent / "baselines" / "bm25s_tokenize.py"
    command = [str(python), str(script), str(corpus.folder / "chunks.jsonl.gz"), str(number), str(runs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    theirs = [float(line) for line in done.stdout.split()]
    bench.speed("analysing, vs bm25s' tokens", times["analyse"], theirs, amount=megabytes, unit="MB/s", bar=None)


def statements(connection: psycopg.Connection[Any], texts: Sequence[str]) -> dict[str, Callable[[], object]]:
    """The same texts in the server: analysed in one process, and only read."""
    connection.execute("SET max_parallel_workers_per_gather = 0")
    connection.execute("CREATE TABLE text (content text)")
    with connection.cursor().copy("COPY text FROM STDIN") as copy:
        for text in texts:
            copy.write_row((text,))
    connection.execute("VACUUM ANALYZE text")
    return {
        "to_tsvector": lambda: connection.execute(
            "SELECT sum(length(to_tsvector('english', content))) FROM text"
        ).fetchone(),
        "length": lambda: connection.execute("SELECT sum(length(content)) FROM text").fetchone(),
    }
