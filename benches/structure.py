"""Structure.

Sixty questions of users on three manuals ([their origin](../../tests/data/manuals/README.md)), hybrid search with
static embeddings. "success@3" is the share that one of the first three results answers. `--model` takes another model.
"Calls" are 40 of them with terms, which a language model wrote from the description of the assistants' tool and the
question alone. `--terms FILE` adds recorded terms: lines with `question`, `terms`, and `plain`, those without names.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from semlex import SyncRetriever
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benches.measuring import Bench
    from semlex import SearchResult
    from semlex.types.documents import StoredChunk

QUESTIONS = Path(__file__).resolve().parent.parent / "tests" / "data" / "manuals"
TOP, DEEP = 3, 10
SUCCESS_BAR, CUT_BAR, PATHLESS_BAR = 0.9, 0.01, 0.02
# Least share of questions that are answered within `TOP`, by how their terms came about.
TERMS_BARS = {"calls": 0.8, "terms": 0.9, "terms without names": 0.8}
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*")
_MARKDOWN_HEADING = re.compile(r"#{1,6}\s")
_CODE_DIRECTIVE = re.compile(r"\.\. (code-block|code|sourcecode|note|warning|tip|seealso)::")


@dataclass(frozen=True, slots=True)
class Manual:
    """One of the manuals.

    Attributes:
        name: Of its questions.
        package: As published.
        digest: SHA-256 of the source archive.
        folder: Of the manual, in the archive.
        format: How it is written.
    """

    name: str
    package: str
    digest: str
    folder: str
    format: str


MANUALS = (
    Manual(
        "pytest",
        "pytest==9.2.0",
        "97c4f3b1f3c7414aa36465e09b8220f1d03627993bd51b1282e193753c80557b",
        "pytest-9.2.0/doc/en",
        "reStructuredText",
    ),
    Manual(
        "pymdown",
        "pymdown-extensions==13.1",
        "e1ecec373677483b7324a47e5b4bf2e0c6614fe8dcdab1dcc6a05ecefd9b527d",
        "pymdown_extensions-13.1/docs/src/markdown",
        "Markdown",
    ),
    Manual(
        "lxml",
        "lxml==6.1.3",
        "45222d94ddd511536f3b2f7d9deae3b2339b4ce0f075f1ca25703b07cad9dd21",
        "lxml-6.1.3/doc/html",
        "HTML",
    ),
)


def run(bench: Bench, *, quick: bool, state: Path, model: str | None = None, terms: Path | None = None) -> None:
    """Takes the figures, with static embeddings or with another model, and with recorded terms."""
    recorded = {"calls": recorded_terms(QUESTIONS / "calls.jsonl", "terms")}
    if terms is not None:
        recorded |= {"terms": recorded_terms(terms, "terms"), "terms without names": recorded_terms(terms, "plain")}
    with_terms: dict[str, list[Outcome]] = {name: [] for name in recorded}
    manuals = MANUALS[:1] if quick else MANUALS
    outcomes: list[Outcome] = []
    chunks = cut = pathless = 0
    shutil.rmtree(state / "structure", ignore_errors=True)
    with EmbeddedServer(state / "structure") as server:
        for manual in manuals:
            source = unpacked(manual, state)
            with SyncRetriever(
                server.url, model or "static", None, use_reranking=False, collection=manual.name
            ) as retriever:
                retriever.index(source)
                own = [outcome_of(question, retriever) for question in questions_of(manual)]
                for name, written in recorded.items():
                    with_terms[name] += [
                        outcome_of(question, retriever, written[question["question"]])
                        for question in questions_of(manual)
                        if question["question"] in written
                    ]
                rows = chunks_of(retriever)
            for outcome in own:
                if not outcome.is_within(TOP):
                    rank = f"at {outcome.rank}" if outcome.rank else f"not among the first {DEEP}"
                    print(f"    {manual.name}, {rank}: {outcome.question:.90}", flush=True)
            outcomes += own
            success = share(outcome.is_within(TOP) for outcome in own)
            bench.at_least(f"{manual.format}, success@{TOP}", success, unit="of questions", bar=SUCCESS_BAR)
            chunks += len(rows)
            cut += sum(row.is_cut for row in rows)
            pathless += sum(row.lacks_path for row in rows)
            bench.at_most(f"{manual.format}, chunks", len(rows), unit="chunks", bar=None)
            for row in [row for row in rows if row.is_cut][:3]:
                print(f"    cut: {row.where}", flush=True)
            for row in [row for row in rows if row.lacks_path][:3]:
                print(f"    no path: {row.where}", flush=True)
    for depth, bar in ((1, None), (TOP, SUCCESS_BAR), (DEEP, None)):
        success = share(outcome.is_within(depth) for outcome in outcomes)
        bench.at_least(f"all, success@{depth}", success, unit="of questions", bar=bar)
    _add_with_terms(bench, with_terms)
    found = share(outcome.has_file for outcome in outcomes)
    bench.at_least(f"all, a right file among the first {TOP}", found, unit="of questions", bar=None)
    bench.at_most("cut from what they introduce", cut / chunks, unit="of chunks", bar=CUT_BAR)
    bench.at_most("without heading path", pathless / chunks, unit="of chunks", bar=PATHLESS_BAR)


def _add_with_terms(bench: Bench, outcomes: dict[str, list[Outcome]]) -> None:
    for name, own in outcomes.items():
        for depth in (1, TOP, DEEP):
            success = share(outcome.is_within(depth) for outcome in own)
            bar = TERMS_BARS[name] if depth == TOP else None
            bench.at_least(f"{name} ({len(own)}), success@{depth}", success, unit="of questions", bar=bar)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a question found.

    Attributes:
        question: Its text.
        rank: Of the first hit that answers it, from 1; None where none of the first `DEEP` does.
        has_file: Whether one of the first `TOP` hits comes from a place of the answer.
    """

    question: str
    rank: int | None
    has_file: bool

    def is_within(self, depth: int) -> bool:
        return self.rank is not None and self.rank <= depth


def recorded_terms(path: Path, field: str) -> dict[str, str]:
    """Question -> the terms that a language model wrote for it."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["question"]: line[field] for line in lines}


def outcome_of(question: Question, retriever: SyncRetriever, terms: str | None = None) -> Outcome:
    """Asks a question, with terms or without."""
    hits = retriever.search(question["question"], top_k=DEEP, terms=terms)
    rank = next((hit.rank for hit in hits if is_answered(question, [hit])), None)
    has_file = any(hit.source_document in question["places"] for hit in hits[:TOP])
    return Outcome(question["question"], rank, has_file)


def share(values: Iterable[bool]) -> float:
    """How many of them are true, 0 to 1."""
    listed = list(values)
    return sum(listed) / len(listed)


def unpacked(manual: Manual, state: Path) -> Path:
    """The folder of a manual, downloaded where it is not there."""
    folder = state / "manuals" / manual.name
    if not (folder / "made").exists():
        with tempfile.TemporaryDirectory() as fetched:
            # Only the package itself as source: what pip needs to read its metadata comes built.
            name = manual.package.partition("==")[0]
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*download, f"--no-binary={name}", "--dest", fetched, manual.package], check=True)
            (archive,) = Path(fetched).glob("*.tar.gz")
            if hashlib.sha256(archive.read_bytes()).hexdigest() != manual.digest:
                raise RuntimeError(f"{archive.name} is not the archive that the questions are about")
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
        (folder / "made").touch()
    return folder / manual.folder


class Question(TypedDict):
    """A line of the questions' files; their README says what the fields mean."""

    question: str
    answers: list[str]
    places: list[str]
    lines: list[int]


def questions_of(manual: Manual) -> list[Question]:
    """The questions on a manual."""
    return [json.loads(line) for line in (QUESTIONS / f"{manual.name}.jsonl").read_text().splitlines()]


def is_answered(question: Question, hits: Sequence[SearchResult]) -> bool:
    """Whether a hit comes from one of the places and holds one of the answers."""
    found = [" ".join(hit.content.split()) for hit in hits if hit.source_document in question["places"]]
    return any(" ".join(answer.split()) in text for answer in question["answers"] for text in found)


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk, looked at.

    Attributes:
        where: File and line.
        is_cut: Whether it ends in a heading, a lead-in or a directive whose content is in the next one.
        lacks_path: Whether nothing stands above it although its file has headings before it.
    """

    where: str
    is_cut: bool
    lacks_path: bool


def chunks_of(retriever: SyncRetriever) -> list[ChunkRow]:
    """The chunks of a collection, each looked at."""
    chunks: list[StoredChunk] = []
    while page := retriever.list_chunks(limit=10_000, after=chunks[-1].id if chunks else None):
        chunks += page
    rows = []
    for document, group in groupby(sorted(chunks, key=_place), key=lambda chunk: chunk.source_document):
        own = list(group)
        first_heading = next((number for number, chunk in enumerate(own) if chunk.heading_path), len(own))
        for number, chunk in enumerate(own):
            rest = "" if number + 1 == len(own) else own[number + 1].content
            rows.append(
                ChunkRow(
                    f"{document}:{chunk.line}",
                    ends_cut(chunk.content, rest, is_markdown=document.endswith((".md", ".html"))),
                    not chunk.heading_path and number > first_heading,
                )
            )
    return rows


def _place(chunk: StoredChunk) -> tuple[str, int]:
    return chunk.source_document, chunk.char_start or 0


def ends_cut(text: str, following: str, *, is_markdown: bool) -> bool:
    """Whether a chunk ends in what announces the next one: a heading, words with a colon, or a directive."""
    lines = [line for line in text.splitlines() if line.strip()]
    last, before = lines[-1].strip(), lines[-2] if len(lines) > 1 else ""
    if not following or text.count("```") % 2:
        return False  # inside code
    if is_markdown:
        return bool(_MARKDOWN_HEADING.match(last)) or last.endswith(":")
    is_heading = bool(_UNDERLINE.fullmatch(last)) and before[:1].strip() != "" and not _UNDERLINE.fullmatch(before)
    return (
        is_heading or (last.endswith(":") and not last.startswith((":", ".. _"))) or bool(_CODE_DIRECTIVE.match(last))
    )
