"""Beside other libraries.

Hybrid searches of semlex and of what people use instead: 100,000 pieces of documentation with static vectors of 256
dimensions. Questions are 7 to 13 words of pieces that are not stored, so that no row holds all words of most questions.
Each library stores the same rows, in a folder or a server of its own. All run at their defaults, with what their
documentation advises: indexes of filtered fields, for pgvector `hnsw.iterative_scan` and memory to build indexes in,
and an HNSW index if there is a choice. If a fusion can be set up, it takes 30 hits of each search and reciprocal ranks.
langchain-postgres and LlamaIndex store 1,000 rows themselves, the others reach their tables by COPY.

Libraries search in turn, a round each, in alternating order, warm. Processor time is that of the library's process and
of its server. "Times semlex's" is the median over the rounds: above 1, semlex is better. "Busy" means beside one thread
of the same process that computes in Python. If searches take long, a round asks fewer questions, and semlex is compared
on the same ones. Filters are equalities; "far" keeps the tenth of the rows that is farthest from the question. Rows and
recall are those of ten vectors. The same twenty questions are asked twice under a filter.

`--data FOLDER` adds nDCG@10 on the judged collections of a folder that are in English. `--million` stores a million
pieces, in semlex and LanceDB alone.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benches.baselines.peers.protocol import TOP, Rows
from benches.corpus import corpus_of, questions_of
from benches.filters import clustered
from benches.measuring import Table
from benches.peer_process import PeerProcess, disk, server
from benches.preparing import python_of
from benches.servers import vacuum
from semlex.embedding.static import StaticEmbedder
from semlex.evaluation import read_judged_set
from semlex.evaluation.datasets import read_corpus
from semlex.evaluation.metrics import ndcg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benches.measuring import Bench

CHUNKS, QUICK_CHUNKS, MILLION = 100_000, 5_000, 1_000_000
# Pieces behind the stored ones, which questions are taken from.
HELD_BACK = 2_000
QUICK_QUESTIONS = 20
ROUNDS, QUICK_ROUNDS = 4, 2
BUSY_ROUNDS, QUICK_BUSY_ROUNDS = 2, 1
AT_ONCE, SECONDS, QUICK_SECONDS = 8, 4.0, 0.7
# A round of one library lasts about so long at most, and asks so many questions at least.
ROUND_SECONDS, LEAST_QUESTIONS = 4.0, 6
FILTERED_QUESTIONS = 20
TOPICS, SEED = 10, 7
FAR = "far"
FILTERS = {"1/2": "share_2", "1/10": "share_10", "1/20": "share_20", "1/100": "share_100", FAR: "topic"}
SHARES = {"share_2": 2, "share_10": 10, "share_20": 20, "share_100": 100}
# Our value over theirs, at most: wall time of a lone search quiet and busy, processor time of a lone search.
WALL_BAR, BUSY_BAR = 0.7, 1.2
PROCESSOR_BARS = {"Qdrant Edge": 3.5, "LanceDB": 0.65}
OURS = "semlex"
OF_MILLION = (OURS, "LanceDB")


@dataclass(frozen=True, slots=True)
class Kind:
    """A library.

    Attributes:
        module: What runs in its process.
        environment: Of its packages; None: that which runs this.
        postgres: Whether it needs a server.
    """

    module: str
    environment: str | None = None
    postgres: bool = False

    def python(self, state: Path) -> Path:
        """Its interpreter."""
        return Path(sys.executable) if self.environment is None else python_of(state, self.environment)


KINDS = {
    OURS: Kind("ours", postgres=True),
    "Qdrant Edge": Kind("qdrant_edge_shard", "qdrant_edge"),
    "LanceDB": Kind("lancedb_table", "lancedb"),
    "Chroma, vectors only": Kind("chroma_collection", "chroma"),
    "sqlite-vec + FTS5": Kind("sqlite_tables", "sqlite_vec"),
    "SQL by hand, all words": Kind("sql_by_hand", postgres=True),
    "SQL by hand, any word": Kind("sql_any_word", postgres=True),
    "langchain-postgres": Kind("langchain_postgres_table", "langchain", postgres=True),
    "LlamaIndex": Kind("llama_index_table", "llama_index", postgres=True),
}


@dataclass(frozen=True, slots=True)
class Round:
    """Searches of one library.

    Attributes:
        times: Seconds of each.
        client, server: Processor seconds of all.
        seconds: From the first to the last.
    """

    times: list[float]
    client: float
    server: float
    seconds: float

    @property
    def processor(self) -> float:
        """Milliseconds a search, of client and server."""
        return 1000 * (self.client + self.server) / len(self.times)


@dataclass(slots=True)
class Contender:
    """A library with the rows in it.

    Attributes:
        process: Where it runs.
        folder: What it stores.
        load: What the load took.
        load_server: Processor seconds of the server meanwhile.
        questions: How many a round asks.
        rounds: By situation.
        cells: Rows, recall and processor milliseconds of the first searches and of the same ones again, by filter.
        quality: nDCG@10, by judged set.
    """

    process: PeerProcess
    folder: Path
    load: dict[str, Any]
    load_server: float
    questions: int = 0
    rounds: dict[str, list[Round]] = field(default_factory=lambda: {"alone": [], "busy": [], "at once": []})
    cells: dict[str, tuple[float, float, float, float]] = field(default_factory=dict)
    quality: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Data:
    """What is stored and asked: folders of rows, and the nearest rows to each question by filter."""

    stored: Rows
    asked: Rows
    topics: list[int]  # the farthest of each question

    def filters(self, name: str) -> list[tuple[str, int]]:
        """The filter of each question."""
        if name == FAR:
            return [("topic", topic) for topic in self.topics]
        return [(FILTERS[name], 1)] * len(self.asked.texts)

    def truth(self, wheres: Sequence[tuple[str, int] | None]) -> list[set[int]]:
        """The nearest rows that pass the filter of each question."""
        found = []
        for vector, where in zip(self.asked.vectors, wheres, strict=False):
            passing = np.arange(len(self.stored.texts))
            if where is not None:
                passing = np.flatnonzero(np.asarray(self.stored.fields[where[0]]) == where[1])
            nearest = np.argsort(-(self.stored.vectors[passing] @ vector))[:TOP]
            found.append({int(row) for row in passing[nearest]})
        return found


def run(bench: Bench, *, quick: bool, state: Path, data: Path | None = None) -> None:
    """Takes the figures."""
    corpus = corpus_of(state)
    if not corpus.exists:
        bench.unmeasured("a lone search, wall time over LanceDB's", "times", WALL_BAR, "run ./x bench --prepare")
        return
    wanted = {name: KINDS[name] for name in (OF_MILLION if bench.million else KINDS)}
    kinds = {name: kind for name, kind in wanted.items() if kind.python(state).exists()}
    for name in wanted.keys() - kinds.keys():
        print(f"  {name}: left out, run ./x bench --prepare")
    with tempfile.TemporaryDirectory(prefix="semlex-bench-", dir="/tmp") as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        folder.chmod(0o711)  # as root the servers run under another account
        size = MILLION if bench.million else QUICK_CHUNKS if quick else CHUNKS
        held = prepared(state, corpus.chunks, size, quick=quick)
        contenders = {}
        for name, kind in kinds.items():
            try:
                contenders[name] = loaded(stack, kind, state, folder / kind.module, held)
            except RuntimeError as error:
                if name == OURS:
                    raise
                print(f"  {name}: left out, {error}", flush=True)
            else:
                show_load(name, contenders[name])
        search_in_turn(contenders, quick=quick)
        for contender in contenders.values():
            filtered(contender, held)
        footprints = {name: (*one.process.memory(), disk(one.folder)) for name, one in contenders.items()}
        sets = sorted(path.parent for path in data.glob("*/META.json")) if data else []
        judge(contenders, state, folder, sets)
        report(bench, contenders, footprints, held, with_bars=not (quick or bench.million))


def prepared(state: Path, chunks: Callable[[int], list[str]], size: int, *, quick: bool) -> Data:
    """Rows and questions with their vectors, made once."""
    folder = state / f"peers-{size}"
    stored, asked = Rows(folder / "stored"), Rows(folder / "asked")
    if not (folder / "topics.json").exists() or stored.fields.keys() != {*SHARES, "topic"}:
        print(f"  embedding {size:,} pieces, for this run and later ones", flush=True)
        texts = chunks(size + HELD_BACK)
        embedder = StaticEmbedder()
        vectors = np.asarray(embedder.embed_documents(texts[:size]), dtype=np.float32)
        questions = questions_of(texts[size:])
        vectors_of_questions = np.array([embedder.embed_query(text) for text in questions], dtype=np.float32)
        embedder.close()
        topics, centres = clustered(vectors, TOPICS)
        numbers = np.random.default_rng(SEED).permutation(size)
        fields = {name: (numbers % step).tolist() for name, step in SHARES.items()} | {"topic": topics.tolist()}
        stored = Rows.write(folder / "stored", texts[:size], vectors, fields)
        asked = Rows.write(folder / "asked", questions, vectors_of_questions)
        farthest = (vectors_of_questions @ centres.T).argmin(axis=1)
        (folder / "topics.json").write_text(json.dumps(farthest.tolist()))
    topics_of = json.loads((folder / "topics.json").read_text())
    if quick:
        asked = Rows.write(folder / "few", asked.texts[:QUICK_QUESTIONS], asked.vectors[:QUICK_QUESTIONS])
    return Data(stored, asked, topics_of)


def loaded(stack: contextlib.ExitStack, kind: Kind, state: Path, folder: Path, data: Data) -> Contender:
    """A library that has stored the rows, and has been asked everything once, in a process that did not load them."""
    folder.mkdir()
    folder.chmod(0o711)
    place, its_server = str(folder), None
    if kind.postgres:
        its_server = stack.enter_context(server(folder, tuned=kind.module != KINDS[OURS].module))
        place = its_server.url
    with PeerProcess(kind.python(state), kind.module, place, "stored", its_server) as loading:
        load, used = loading.measured("load", folder=str(data.stored.folder))
    if its_server:
        vacuum(its_server.url)
    process = stack.enter_context(PeerProcess(kind.python(state), kind.module, place, "stored", its_server))
    process.ask("reopen", dimensions=data.stored.vectors.shape[1], fields=list(data.stored.fields))
    process.ask("queries", folder=str(data.asked.folder))
    contender = Contender(process, folder, load, used)
    times = process.ask("alone", busy=False, questions=len(data.asked.texts))["times"]
    contender.questions = int(min(len(times), max(LEAST_QUESTIONS, ROUND_SECONDS / statistics.mean(times))))
    return contender


def show_load(name: str, contender: Contender) -> None:
    """Says that a library is ready."""
    load = contender.load
    found = "" if load["found"] else "; a search did not find the last row"
    print(
        f"  {name}: {load['rows']:,} rows in {load['seconds']:.1f} s, indexes {load['index_seconds']:.1f} s{found}",
        flush=True,
    )


def search_in_turn(contenders: dict[str, Contender], *, quick: bool) -> None:
    """Rounds of every library, alone, busy and several at once."""
    situations: dict[str, tuple[int, str, dict[str, Any]]] = {
        "alone": (QUICK_ROUNDS if quick else ROUNDS, "alone", {"busy": False}),
        "busy": (QUICK_BUSY_ROUNDS if quick else BUSY_ROUNDS, "alone", {"busy": True}),
        "at once": (
            QUICK_BUSY_ROUNDS if quick else BUSY_ROUNDS,
            "at_once",
            {"number": AT_ONCE, "seconds": QUICK_SECONDS if quick else SECONDS},
        ),
    }
    for situation, (rounds, do, options) in situations.items():
        for turn in range(rounds):
            for contender in list(contenders.values())[:: -1 if turn % 2 else 1]:
                given = options | ({"questions": contender.questions} if do == "alone" else {})
                answer, used = contender.process.measured(do, **given)
                one = Round(answer["times"], answer["processor"], used, answer["seconds"])
                contender.rounds[situation].append(one)
        print(f"  {situation}: {rounds} rounds", flush=True)


def filtered(contender: Contender, data: Data) -> None:
    """Vector searches, all and under each filter."""
    for name in ("none", *FILTERS):
        wheres: list[Any] = (
            [None] * len(data.asked.texts) if name == "none" else data.filters(name)[:FILTERED_QUESTIONS]
        )
        passes = [contender.process.measured("nearest", filters=wheres) for _ in range(2)]
        answer = passes[0][0]
        truth = data.truth(wheres)
        rows = statistics.mean(map(len, answer["hits"]))
        shares = [len(best.intersection(hits)) / len(best) for hits, best in zip(answer["hits"], truth, strict=True)]
        first, again = (1000 * (one["processor"] + used) / len(wheres) for one, used in passes)
        contender.cells[name] = rows, statistics.mean(shares), first, again


def judge(contenders: dict[str, Contender], state: Path, folder: Path, sets: list[Path]) -> None:
    """nDCG@10 of every library on every judged set in English."""
    embedder = StaticEmbedder()
    for path in sets:
        if json.loads((path / "META.json").read_text(encoding="utf-8"))["language"] != "en":
            continue
        documents, judged = list(read_corpus(path)), read_judged_set(path)
        texts = [document.content for document in documents]
        queries = {query: text for query, text in judged.queries.items() if judged.judgements.get(query)}
        stored = Rows.write(folder / f"{path.name}-stored", texts, embedder.embed_documents(texts))
        vectors = np.array([embedder.embed_query(text) for text in queries.values()], dtype=np.float32)
        asked = Rows.write(folder / f"{path.name}-asked", list(queries.values()), vectors)
        name = path.name.replace("-", "_")
        for library, contender in contenders.items():
            kind, its_server = KINDS[library], contender.process.server
            place = its_server.url if its_server else str(folder / f"{name}-{kind.module}")
            if its_server is None:
                Path(place).mkdir()
            try:
                with PeerProcess(kind.python(state), kind.module, place, name, its_server) as process:
                    process.ask("load", folder=str(stored.folder))
                    hits = process.ask("queries", folder=str(asked.folder))
            except RuntimeError as error:
                print(f"  {library}: {path.name} is left out, {error}", flush=True)
                continue
            run_of = {
                query: {documents[row].id or "": -float(rank) for rank, row in enumerate(own)}
                for query, own in zip(queries, hits, strict=True)
            }
            contender.quality[path.name] = float(ndcg(run_of, {q: judged.judgements[q] for q in queries}, TOP).mean())
        print(f"  judged: {path.name}", flush=True)
    embedder.close()


def percentile(rounds: list[Round], place: int) -> float:
    """Milliseconds, over all rounds."""
    return 1000 * float(np.percentile([time for one in rounds for time in one.times], place))


def processor(rounds: list[Round]) -> float:
    """Processor milliseconds a search of all rounds."""
    return 1000 * sum(one.client + one.server for one in rounds) / sum(len(one.times) for one in rounds)


def speed(rounds: list[Round]) -> float:
    """Searches a second of all rounds."""
    return sum(len(one.times) for one in rounds) / sum(one.seconds for one in rounds)


def wall_ratio(theirs: list[Round], ours: list[Round]) -> float:
    """Their median wall time over ours for the same questions: the median over rounds."""
    return statistics.median(
        statistics.median(their.times) / statistics.median(own.times[: len(their.times)])
        for their, own in zip(theirs, ours, strict=True)
    )


def processor_ratio(theirs: list[Round], ours: list[Round]) -> float:
    """Their processor time a search over ours: the median over rounds."""
    return statistics.median(their.processor / own.processor for their, own in zip(theirs, ours, strict=True))


def report(
    bench: Bench,
    contenders: dict[str, Contender],
    footprints: dict[str, tuple[float, float, float]],
    data: Data,
    *,
    with_bars: bool,
) -> None:
    """All tables, and the figures that have bars."""
    ours = contenders[OURS].rounds
    prefix = "a million rows: " if bench.million else ""
    for name, bar in PROCESSOR_BARS.items():
        if name not in contenders:
            bench.unmeasured(f"{prefix}a lone search, processor time over {name}'s", "times", bar, "it did not run")
            continue
        theirs = contenders[name].rounds
        for situation, wall_bar in (("alone", WALL_BAR), ("busy", BUSY_BAR)):
            search = f"{prefix}a lone search" + (" beside a busy thread" if situation == "busy" else "")
            wall = 1 / wall_ratio(theirs[situation], ours[situation])
            bars = wall_bar if name == "LanceDB" else None, bar if situation == "alone" else None
            wall_limit, processor_limit = bars if with_bars else (None, None)
            bench.at_most(f"{search}, wall time over {name}'s", wall, unit="times", bar=wall_limit)
            used = 1 / processor_ratio(theirs[situation], ours[situation])
            bench.at_most(f"{search}, processor time over {name}'s", used, unit="times", bar=processor_limit)
        share = speed(ours["at once"]) / speed(theirs["at once"])
        bench.at_least(f"{prefix}{AT_ONCE} at once, searches/s over {name}'s", share, unit="times", bar=None)
    bench.tables.append(searches(contenders))
    bench.tables.append(loads(contenders, footprints, len(data.stored.texts)))
    bench.tables.append(filters(contenders))
    if any(one.quality for one in contenders.values()):
        bench.tables.append(qualities(contenders))
    for table in bench.tables:
        show(table)


def shown(value: float) -> str:
    """A value with three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def searches(contenders: dict[str, Contender]) -> Table:
    """Hybrid searches."""
    ours = contenders[OURS].rounds
    columns = ["", "p50, p95", "processor: client + server", "times semlex's: p50, processor"]
    columns += [
        "busy: p50",
        "times semlex's",
        f"{AT_ONCE} at once: searches/s",
        "p50, p95",
        "processor",
        "times semlex's",
    ]
    rows = []
    for name, contender in contenders.items():
        alone, busy, at_once = (contender.rounds[one] for one in ("alone", "busy", "at once"))
        client, its_server = (
            1000 * sum(parts) / sum(len(one.times) for one in alone)
            for parts in ([one.client for one in alone], [one.server for one in alone])
        )
        rows.append(
            [
                name,
                f"{shown(percentile(alone, 50))}, {shown(percentile(alone, 95))} ms",
                f"{shown(client)} + {shown(its_server)} ms",
                f"{wall_ratio(alone, ours['alone']):.2f}, {processor_ratio(alone, ours['alone']):.2f}",
                f"{shown(percentile(busy, 50))} ms",
                f"{wall_ratio(busy, ours['busy']):.2f}",
                shown(speed(at_once)),
                f"{shown(percentile(at_once, 50))}, {shown(percentile(at_once, 95))} ms",
                f"{shown(processor(at_once))} ms",
                f"{processor_ratio(at_once, ours['at once']):.2f}",
            ]
        )
    return Table("Hybrid searches, ten hits.", columns, rows)


def loads(contenders: dict[str, Contender], footprints: dict[str, tuple[float, float, float]], rows_: int) -> Table:
    """Loads and what is kept."""
    columns = ["", "rows/s until searchable", "rows/s until indexed", "processor", "disk", "memory: client + server"]
    rows = []
    for name, contender in contenders.items():
        load = contender.load
        searchable = load["rows"] / load["seconds"]
        indexed = rows_ / (rows_ / searchable + load["index_seconds"])
        used = load["processor"] * rows_ / load["rows"] + load["index_processor"] + contender.load_server
        client, its_server, kept = footprints[name]
        memory = f"{shown(client)} + {shown(its_server)} MiB" if its_server else f"{shown(client)} MiB"
        rows.append([name, shown(searchable), shown(indexed), f"{shown(used)} s", f"{shown(kept)} MiB", memory])
    title = (
        "Loading the rows, once. The disk of a server includes its write-ahead log. The processor time of a server "
        "includes the COPY of the rows that langchain-postgres and LlamaIndex did not store themselves."
    )
    return Table(title, columns, rows)


def filters(contenders: dict[str, Contender]) -> Table:
    """Filters."""
    columns = [
        "rows, recall@10, processor: first, again",
        "no filter",
        *(f"keeps {name}" if name != FAR else "far" for name in FILTERS),
    ]
    rows = []
    for name, contender in contenders.items():
        cells = [contender.cells[cell] for cell in ("none", *FILTERS)]
        shown_cells = (
            f"{rows_:.3g}, {recall:.3f}, {shown(first)}, {shown(again)} ms" for rows_, recall, first, again in cells
        )
        rows.append([name, *shown_cells])
    return Table("Vector searches under filters.", columns, rows)


def qualities(contenders: dict[str, Contender]) -> Table:
    """Judged sets."""
    sets = list(dict.fromkeys(name for one in contenders.values() for name in one.quality))
    rows = [
        [name, *(f"{one.quality[judged]:.3f}" if judged in one.quality else "" for judged in sets)]
        for name, one in contenders.items()
    ]
    return Table("Hybrid searches, nDCG@10.", ["", *sets], rows)


def show(table: Table) -> None:
    """Prints a table in columns."""
    print(f"  {table.title}")
    lines = [table.columns, *table.rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(table.columns))]
    for line in lines:
        print("    " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)), flush=True)
