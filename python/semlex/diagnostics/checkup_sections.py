"""Sections of a checkup: choose usable headings, remove them from their sections' texts, and rank these texts."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex import _core
from semlex.ingest.chunk_rows import CONTEXT_SEPARATOR, embedded_text
from semlex.search.fusion import DEFAULT_VECTOR_WEIGHT, LEGS, other_scores, union_of
from semlex.search.planner import MIN_CANDIDATES
from semlex.search.retrieval import Retrieval
from semlex.store.keyword.base import ChangedText
from semlex.store.query.leg import Key, key_order
from semlex.store.query.score_calibration import Calibration, Spread
from semlex.store.query.vector import register_vector_parameter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from semlex.open_collection import OpenCollection
    from semlex.search.state import SearchState
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.surroundings import SectionChunk, SectionRow


# A heading of more sections is ambiguous.
MAX_REPEATS = 2
# A larger section is about many things, and one of its chunks is found too easily.
MAX_SECTION_CHUNKS = 12
# Files of source code whose definitions say in a docstring what they do.
DOCSTRINGS = (".py", ".pyi")
_DOCSTRING = re.compile(r"""^\s*[rRuU]?(\"{3}|'{3})\s*(?:\\\n\s*)?([^\n]*?)\s*(?:\1.*)?$""", re.MULTILINE)
# Markup on the line of a heading, in Markdown and reStructuredText.
_BESIDE = re.compile(r"\]\([^)]*\)|\{:?\s*[#.][^}]*\}\s*$|^\s*\.\.\s+(?:_|[\w:-]+::)|:[\w:+-]+:(?=`)")
_RULE = re.compile(r"\s*([!-/:-@\[-`{-~])\1+\s*")
# Read by keyword search as a phrase or an exclusion.
_QUOTES = frozenset('"\u00ab\u00bb\u201c\u201d\u201e')
_DASHES = re.compile(r"(?<!\S)-+")
# Of longer headings only the beginning is searched; a search takes 4 KiB.
MAX_QUESTION_CHARACTERS = 1_000
# Titles are cut to this length when a document is read.
TITLE_CHARACTERS = 256

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with all chunks below it."""

    source: str
    document: str
    path: tuple[str, ...]
    documents: tuple[UUID, ...]

    @property
    def is_code(self) -> bool:
        """Whether the first line of a docstring is searched instead of the heading, as in Python code."""
        return self.document.lower().endswith(DOCSTRINGS)


@dataclass(frozen=True, slots=True)
class Choice:
    """The headings that can be searched, and how many cannot be, by the fields of `LeftOut`."""

    sections: list[Section]
    headings: int
    left_out: Counter[str]
    chunks: Counter[tuple[str, str]]


def words_of(text: str) -> Words:
    """Return the words of a text, case-folded."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return tuple(folded[start:end] for start, end in _core.word_offsets(folded).tolist())


def question_of(heading: str) -> str:
    """Return a heading as a query, without quotes and dashes, which would require or exclude words."""
    plain = "".join(" " if one in _QUOTES or unicodedata.category(one) == "Cc" else one for one in heading)
    return " ".join(_DASHES.sub(" ", plain[:MAX_QUESTION_CHARACTERS]).split())


def choose(rows: Sequence[SectionRow], seed: int) -> Choice:
    """Return the usable headings (with text directly below) in a random order that the seed determines."""
    chunks: Counter[tuple[str, str]] = Counter()
    for row in rows:
        chunks[row.source, row.document] += row.chunks
    found = [one for own in _files(rows) for one in _sections(own)]
    repeats = Counter(words_of(section.path[-1]) for section, _ in found if not section.is_code)
    fair: list[Section] = []
    left_out: Counter[str] = Counter()
    for section, count in found:
        words = words_of(section.path[-1])
        if not words:
            left_out["wordless"] += 1
        elif repeats[words] > MAX_REPEATS:
            left_out["repeated"] += 1
        elif count > MAX_SECTION_CHUNKS:
            left_out["wide"] += 1
        else:
            fair.append(section)
    fair.sort(key=lambda one: (one.source, one.document, one.path, one.documents))
    random.Random(seed).shuffle(fair)  # noqa: S311 - a sample, no secret
    return Choice(fair, len(found), left_out, chunks)


def _files(rows: Sequence[SectionRow]) -> Iterable[list[SectionRow]]:
    """Return the rows of each document that has headings, by document."""
    files: dict[tuple[str, str, tuple[UUID, ...]], list[SectionRow]] = defaultdict(list)
    for row in rows:
        if row.path:
            # Two sources may have files of one name; added chunks without a name are separate documents.
            own = row.documents if row.source or not row.document else ()
            files[row.source, row.document, own].append(row)
    return files.values()


def _sections(rows: Sequence[SectionRow]) -> Iterable[tuple[Section, int]]:
    """Yield each section of a document with the number of its chunks, including those of subsections."""
    below: dict[tuple[str, ...], list[SectionRow]] = defaultdict(list)
    for row in rows:
        for depth in range(1, len(row.path) + 1):
            below[row.path[:depth]].append(row)
    for path in dict.fromkeys(row.path for row in rows):
        keys = tuple(sorted({key for row in below[path] for key in row.documents}))
        yield Section(rows[0].source, rows[0].document, path, keys), sum(row.chunks for row in below[path])


def docstring_of(chunks: Sequence[SectionChunk]) -> str:
    """Return the first line of the first docstring of a section; "" without one."""
    for chunk in chunks:
        match = _DOCSTRING.search(chunk.text)
        if match is not None:
            return match[2]
    return ""


def without(heading: str, chunk: SectionChunk) -> tuple[str, str]:
    """Return a chunk's context and text without the heading, and without lines that have only the heading's words."""
    # The heading is removed from the heading path.
    words, text = words_of(heading), chunk.text
    if len(heading.splitlines()) > 1:
        text = text.replace(heading, "")
    return _context_without(words, chunk), _text_without(words, text, is_cut=len(heading) >= TITLE_CHARACTERS)


def _context_without(words: Words, chunk: SectionChunk) -> str:
    line, separator, rest = chunk.context.partition("\n")
    joined = CONTEXT_SEPARATOR.join(chunk.path)
    if not line.endswith(joined):
        # A title may hold a line break.
        line, separator, rest = chunk.context, "", ""
        at = line.find(joined)
        if at >= 0:
            line, rest = line[: at + len(joined)], line[at + len(joined) :]
    parts: list[str]
    if joined and line.endswith(joined):
        title = line[: len(line) - len(joined)].removesuffix(CONTEXT_SEPARATOR)
        parts = [title, *chunk.path] if title else list(chunk.path)
    else:
        parts = line.split(CONTEXT_SEPARATOR)
    kept = CONTEXT_SEPARATOR.join(part for part in parts if words_of(part) != words)
    return f"{kept}{separator}{rest}" if kept else rest.lstrip("\n")


def _text_without(words: Words, text: str, *, is_cut: bool) -> str:
    lines = text.splitlines(keepends=True)
    stays = [True] * len(lines)
    for number, line in enumerate(lines):
        own = words_of(_BESIDE.sub(" ", line))
        if own == words or (is_cut and words and _begins(own, words)):
            # With the underline or overline of a heading.
            for near in (number - 1, number, number + 1):
                if near == number or (0 <= near < len(lines) and _RULE.fullmatch(lines[near])):
                    stays[near] = False
    return "".join(line for line, kept in zip(lines, stays, strict=True) if kept)


def _begins(own: Words, words: Words) -> bool:
    """Return whether a line's words begin with the heading's words; the heading's last word may be cut."""
    last = len(words) - 1
    return len(own) > last and own[:last] == words[:last] and own[last].startswith(words[last])


# Candidates of each search, as many as a search for ten hits has.
DEPTH = MIN_CANDIDATES
# Factor of extra candidates: keyword scores change slightly when a word is in fewer chunks.
DEEPER = 3

# Scores that differ by less are equal: the server computes cosines in float32.
RESOLUTION = 1e-6


@dataclass(frozen=True, slots=True)
class Probe:
    """A section whose heading is searched; `vectors`: its texts without the heading, float32, (chunks, dimensions)."""

    chunks: Sequence[SectionChunk]
    contexts: Sequence[str]
    texts: Sequence[str]
    vectors: NDArray[np.float32] | None = None

    def embedded(self) -> list[str]:
        """Return the text of each chunk as it is embedded."""
        return [embedded_text(context, text) for context, text in zip(self.contexts, self.texts, strict=True)]

    def changed(self) -> list[ChangedText]:
        """Return the chunks, each with and without the heading."""
        return [
            ChangedText(chunk.key, chunk.language, f"{chunk.context}\n{chunk.text}", f"{context}\n{text}")
            for chunk, context, text in zip(self.chunks, self.contexts, self.texts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class LegScores:
    """Scores of vector or keyword search for a heading."""

    others: NDArray[np.float64]  # of n other chunks, shape (n,); NaN for chunks without a score
    own: NDArray[np.float64]  # of the section's m chunks, shape (m,); NaN for chunks without a score
    found: NDArray[np.bool_]  # Whether each of the others, then each of the own, is a candidate: shape (n + m,).


# Indexing the collection again without each heading would be exact, and endless. Instead the chunks of one section are
# embedded and analysed again, and compared with the candidates of a deeper search. Average length, sample of cosines
# and boundaries of chunks stay: each changes by less than the section's share of the collection.
@dataclass(frozen=True, slots=True)
class Standing:
    """The rank of a section: the rank of its best chunk, from 1; None if none of its chunks is a candidate."""

    rank: int | None
    best: int
    before: list[Key]
    shares_word: bool | None
    by_leg: tuple[int, ...] | None = None  # its rank in vector and in keyword search alone; 0 for none


async def find_rank(snapshot: Snapshot, opened: OpenCollection, begun: SearchState, probe: Probe) -> Standing:
    """Search for a heading, and rank the chunks of its section as if they lacked the heading."""
    register_vector_parameter(snapshot.connection)
    inside, state = opened.within(snapshot), begun.copy()
    found = await Retrieval(inside, reranks=False).find(state, DEEPER * DEPTH + len(probe.chunks))
    results = {name: result for name, result in found.results.items() if result.error is None}
    others = await other_scores(snapshot, results)
    mine = {chunk.key for chunk in probe.chunks}
    keys = [key for key in union_of(results).keys if key not in mine]
    legs: dict[str, LegScores] = {}
    if "keyword" in results:
        changed = await state.collection.keyword.changed_scores(
            snapshot, state.collection.names, state.request.text or "", keys, probe.changed()
        )
        if changed is not None:
            worded, own = (np.where(part > 0, part, np.nan) for part in changed)
            legs["keyword"] = _leg(worded, own, keys, probe)
    if "vector" in results and state.vector is not None and probe.vectors is not None:
        storage = "" if state.collection.embedding is None else state.collection.embedding.storage
        own = similarities(probe.vectors, state.vector, state.collection.distance.name, storage)
        near = dict(zip(results["vector"].keys, results["vector"].scores.tolist(), strict=True))
        if "keyword" in results:
            near = dict(zip(results["keyword"].keys, others["keyword"].tolist(), strict=True)) | near
        legs["vector"] = _leg(np.array([near[key] for key in keys], dtype=np.float64), own, keys, probe)
    spread = None
    if len(legs) > 1 and state.vector is not None:
        spread = await Calibration(opened.sample, state.collection, state.vector).spread(snapshot)
    weight = getattr(opened.models.embedder, "fusion_weight", DEFAULT_VECTOR_WEIGHT)
    return standing(legs, keys, len(probe.chunks), spread, weight)


def similarities(
    vectors: NDArray[np.float32], query: NDArray[np.float32], distance: str, storage: str
) -> NDArray[np.float64]:
    """Return the score of each vector for a query, as if the vectors were stored: float64, shape (vectors,)."""
    rows = vectors.astype(np.float16 if storage == "halfvec" else np.float32).astype(np.float64)
    one = query.astype(np.float16 if storage == "halfvec" else np.float32).astype(np.float64)
    if distance == "l2":
        return np.asarray(-np.linalg.norm(rows - one, axis=1))
    product = np.asarray(rows @ one)
    return product if distance == "inner_product" else product / (np.linalg.norm(rows, axis=1) * np.linalg.norm(one))


def _leg(others: NDArray[np.float64], own: NDArray[np.float64], keys: Sequence[Key], probe: Probe) -> LegScores:
    """Return the scores of one search, with its best `DEPTH` chunks marked as candidates; ties are broken by key."""
    scores = np.concatenate([others, own])
    every = [*keys, *(chunk.key for chunk in probe.chunks)]
    order = sorted(
        np.flatnonzero(~np.isnan(scores)).tolist(), key=lambda number: (-scores[number], *key_order(every[number]))
    )
    found = np.zeros(len(scores), dtype=np.bool_)
    found[order[:DEPTH]] = True
    return LegScores(others, own, found)


def standing(
    legs: dict[str, LegScores], keys: Sequence[Key], own: int, spread: Spread | None, weight: float
) -> Standing:
    """Return the rank of a section from the scores of each search, fused if both ran."""
    found = np.any([leg.found for leg in legs.values()], axis=0)
    columns = {name: np.concatenate([leg.others, leg.own]) for name, leg in legs.items()}
    shares = None if "keyword" not in legs else bool((np.nan_to_num(legs["keyword"].own) > 0).any())
    by_leg: tuple[int, ...] | None = None
    if len(legs) == 1 or spread is None:
        (fused,) = columns.values()
    else:
        fused = fused_scores(columns, found, spread, weight)
        by_leg = tuple(_rank(columns[name], legs[name].found, own) or 0 for name in LEGS)
    rank = _rank(fused, found, own)
    mine = np.where(found, fused, -np.inf)[len(keys) :]
    best = int(mine.argmax()) if rank is not None else int(np.nan_to_num(next(iter(legs.values())).own).argmax())
    order = np.argsort(-np.where(found, fused, -np.inf)[: len(keys)], kind="stable")[: 10 if rank is None else rank - 1]
    before = [keys[number] for number in order.tolist() if found[number]]
    return Standing(rank, best, before[:10], shares, by_leg)


def fused_scores(
    columns: dict[str, NDArray[np.float64]], found: NDArray[np.bool_], spread: Spread, weight: float
) -> NDArray[np.float64]:
    """Return the fused score of each chunk, float64, in the shape of `found`; -inf where `found` is false."""
    scores = np.full(len(found), -np.inf)
    numbers = np.flatnonzero(found)
    order, fused, _, _ = _core.completed_fusion(
        columns["vector"][numbers],
        columns["keyword"][numbers],
        mean=spread.mean,
        deviation=spread.deviation,
        vector_weight=weight,
    )
    scores[numbers[order]] = fused
    return scores


def _rank(scores: NDArray[np.float64], found: NDArray[np.bool_], own: int) -> int | None:
    """Return the best rank of the last `own` chunks among the candidates; None if none of them is a candidate."""
    listed = np.where(found & ~np.isnan(scores), scores, -np.inf)
    border = len(scores) - own
    best = listed[border:].max(initial=-np.inf)
    return None if best == -np.inf else 1 + int((listed[:border] > best + RESOLUTION).sum())
