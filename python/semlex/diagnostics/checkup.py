"""A checkup: samples headings, searches them in batches, and sums up the ranks of their sections."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from semlex import _core
from semlex.diagnostics.checkup_sections import (
    DEPTH,
    MAX_SECTION_CHUNKS,
    Choice,
    Probe,
    Section,
    Standing,
    choose,
    docstring_of,
    find_rank,
    question_of,
    without,
    words_of,
)
from semlex.embedding.static import StaticEmbedder
from semlex.errors import ConfigurationError
from semlex.ingest.embed import DocumentVectors
from semlex.ingest.progress import show_progress
from semlex.search.fusion import LEGS
from semlex.search.pipeline import SearchPipeline
from semlex.search.query_vector import embed_queries
from semlex.search.request import Request
from semlex.store.query.chunks import load_results
from semlex.store.query.surroundings import SectionChunk, read_section_chunks, read_sections
from semlex.types.checkups import AskedHeading, Checkup, CheckupCode, DocumentCheckup, Dominating, LeftOut, Share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from semlex.ingest.progress import Progress
    from semlex.open_collection import OpenCollection
    from semlex.search.state import SearchState
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.types.results import SearchMode


TOP = 3
DEPTHS = (1, 3, 5, 10)
# With fewer headings the interval is wide.
MIN_HEADINGS = 30
Z95 = 1.959964
# A document dominates with this many times the hits its size explains, and at least this many.
DOMINATING_TIMES, DOMINATING_HITS = 3.0, 5

DocumentName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of searching one heading."""

    section: Section
    heading: str
    chunk_id: str
    standing: Standing
    before: Sequence[DocumentName]
    same: bool

    @property
    def is_found(self) -> bool:
        """Whether the section is among the first hits."""
        return is_within(self.standing.rank, TOP)

    @property
    def code(self) -> CheckupCode:
        """Why the section is not among the first hits."""
        if self.same:
            return "duplicate"
        if self.standing.shares_word is False:
            return "no_shared_word"
        if self.standing.rank is not None:
            return "below_top_k"
        is_by_words = self.standing.by_leg is None and self.standing.shares_word
        return "beyond_keyword_depth" if is_by_words else "beyond_vector_depth"


def is_within(rank: int | None, depth: int) -> bool:
    """Return whether a rank is within a depth."""
    return rank is not None and 0 < rank <= depth


def share_of(found: int, asked: int) -> Share:
    """Return a share with its 95 % interval (E. B. Wilson, "Probable Inference, the Law of Succession", JASA 1927)."""
    if not asked:
        return Share(0, 0, 0.0, (0.0, 1.0))
    share, square = found / asked, Z95**2
    centre = (share + square / (2 * asked)) / (1 + square / asked)
    half = Z95 / (1 + square / asked) * math.sqrt(share * (1 - share) / asked + square / (4 * asked**2))
    return Share(found, asked, share, (max(0.0, centre - half), min(1.0, centre + half)))


def of_documents(outcomes: Sequence[Outcome], chunks: Mapping[DocumentName, int]) -> tuple[DocumentCheckup, ...]:
    """Return the documents with their headings; documents of which no section was found come first."""
    by_document: dict[DocumentName, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_document[one.section.source, one.section.document].append(one)
    listed = [
        DocumentCheckup(source, document, chunks.get((source, document), 0), tuple(map(_asked, own)))
        for (source, document), own in by_document.items()
    ]
    return tuple(sorted(listed, key=lambda one: (not one.is_never_found, -len(one.missed), one.source, one.document)))


def _asked(one: Outcome) -> AskedHeading:
    code = None if one.is_found else one.code
    before = tuple(name for _, name in one.before)
    return AskedHeading(one.heading, one.section.path, one.chunk_id, one.standing.rank, code, before)


def dominating(outcomes: Sequence[Outcome], chunks: Mapping[DocumentName, int]) -> tuple[Dominating, ...]:
    """Return documents that are first hits for other documents' headings far more often than their size suggests."""
    hits: Counter[DocumentName] = Counter()
    for one in outcomes:
        own = (one.section.source, one.section.document)
        hits.update(name for name in one.before[:TOP] if name != own)
    total, every = hits.total(), sum(chunks.values())
    found = [
        Dominating(*name, count, count / total, chunks.get(name, 0) / every)
        for name, count in hits.items()
        if name[1] and count >= DOMINATING_HITS
    ]
    return tuple(
        sorted(
            (one for one in found if one.share >= DOMINATING_TIMES * one.expected),
            key=lambda one: (-one.hits, one.source, one.document),
        )
    )


def alone(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the share of sections that vector and keyword search would each find alone; empty if only one ran."""
    ranks = [one.standing.by_leg for one in outcomes if one.standing.by_leg is not None]
    if not ranks or len(ranks) < len(outcomes):
        return {}
    return {
        name: sum(is_within(rank, TOP) for rank in own) / len(ranks)
        for name, own in zip(LEGS, zip(*ranks, strict=True), strict=True)
    }


def notes_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Return notes on how far the figures can be trusted."""
    notes = []
    if outcomes and len(outcomes) < MIN_HEADINGS:
        notes.append(f"{len(outcomes)} headings are too few for a precise figure: see the confidence interval")
    lost = sum(one.standing.rank is None for one in outcomes)
    if lost:
        notes.append(f"{lost} sections are not among the {DEPTH} candidates of either search")
    return notes


# Headings of a checkup with a fast and with a slow embedder.
FAST_SAMPLE, SLOW_SAMPLE = 500, 200
# Without a sample size of the caller's, no further batch begins after so many seconds.
MAX_SECONDS = 60.0
# Headings read and embedded together. The first batch is small, to estimate the rest.
BATCH, FIRST_BATCH = 32, 8
# Share of a chunk's text that makes it a duplicate.
SAME_TEXT = 0.8


@dataclass(frozen=True, slots=True)
class HeadingQuery:
    """A heading to search, with the section that it should find."""

    section: Section
    heading: str
    probe: Probe


# It suggests no weight for the vectors: headings share words with their sections, so words would always seem better.
class CheckupRun:
    """One checkup of an open collection, read-only; `estimated` is called once, with the remaining seconds."""

    def __init__(
        self,
        opened: OpenCollection,
        mode: SearchMode | None,
        progress: Callable[[Progress], None] | None,
        estimated: Callable[[float], None] | None,
    ) -> None:
        self._opened = opened
        self._mode = mode
        self._progress = progress
        self._estimated = estimated
        self._pipeline = SearchPipeline(opened, None)
        name = opened.info.names.collection
        self._vectors = DocumentVectors(name, opened.models.embedder, opened.executor, opened.probe)
        self._left_out: Counter[str] = Counter()
        self._embedded = 0
        self._notes: dict[str, None] = {}

    async def run(self, sample: int | None, seed: int) -> Checkup:
        """Search for a sample of the headings, and sum up the ranks of their sections."""
        started = time.perf_counter()
        opened = self._opened
        state = self._begun("heading")
        rows = await opened.database.read_snapshot(
            "read the headings", lambda one: read_sections(one, state.collection)
        )
        choice = choose(rows, seed)
        self._left_out.update(choice.left_out)
        self._refuse(choice, state)
        if "vector" in state.legs:
            await embed_queries([state], opened)  # loading the model is not part of the estimate
        is_slow = "vector" in state.legs and not isinstance(opened.models.embedder, StaticEmbedder)
        wanted = sample or (SLOW_SAMPLE if is_slow else FAST_SAMPLE)
        outcomes: list[Outcome] = []
        taken = 0
        clock = opened.clock
        began = clock.monotonic()
        while taken < len(choice.sections) and len(outcomes) < wanted:
            if sample is None and outcomes and clock.monotonic() - began > MAX_SECONDS:
                self._notes[
                    f"stopped after {MAX_SECONDS:g} s; to search {wanted} headings: sample={wanted} (--sample {wanted})"
                ] = None
                break
            size = min(BATCH if taken else FIRST_BATCH, wanted - len(outcomes))
            drawn = choice.sections[taken : taken + size]
            outcomes += await self._batch(drawn, len(outcomes), min(wanted, len(choice.sections)))
            if not taken and self._estimated is not None:
                rest = min(wanted, len(choice.sections)) - len(drawn)
                self._estimated((clock.monotonic() - began) / len(drawn) * rest)
            taken += len(drawn)
        if not outcomes:
            raise ConfigurationError(
                f"none of the {choice.headings:,} headings of collection {opened.info.names.collection!r} can be "
                f"searched: {self._left_out['repeated']:,} occur in three or more places, "
                f"{self._left_out['wide']:,} have more than {MAX_SECTION_CHUNKS} chunks below them, and the others "
                "have no word, or no text below them; "
                "`semlex eval` takes queries of your own"
            )
        self._left_out["not_drawn"] = len(choice.sections) - taken
        return self._checkup(choice, outcomes, state, seed, time.perf_counter() - started)

    def _begun(self, text: str) -> SearchState:
        opened = self._opened
        request = Request.of(text, 1, names=opened.info.names, mode=self._mode, rerank=False)
        state = self._pipeline.begin(request)
        self._notes |= dict.fromkeys(state.warnings)
        return state

    def _refuse(self, choice: Choice, state: SearchState) -> None:
        name, settings = self._opened.info.names.collection, self._opened.info.settings
        if not choice.chunks.total():
            raise ConfigurationError(
                f"collection {name!r} is empty: fill it with semlex index PATH --collection {name}"
            )
        if not choice.headings:
            raise ConfigurationError(
                f"no chunk of collection {name!r} has a heading above it, so a checkup has nothing to search for; "
                "`semlex eval` takes queries of your own"
            )
        if "keyword" in state.legs and state.collection.keyword.index is None:
            raise ConfigurationError(
                f"the keyword engine {settings.keyword_engine!r} cannot score a text without its heading: use the "
                "engine 'bm25', or check vector search alone (mode='vector', --mode vector)"
            )

    async def _batch(self, sections: Sequence[Section], done: int, total: int) -> list[Outcome]:
        """Search the headings of these sections; count the headings that cannot be searched."""
        keys = sorted({key for section in sections for key in section.documents})
        collection = self._opened.info
        rows = await self._opened.database.read_snapshot(
            "read sections", lambda snapshot: read_section_chunks(snapshot, collection, keys)
        )
        by_document: dict[object, list[SectionChunk]] = {}
        for row in rows:
            by_document.setdefault(row.key[0], []).append(row)
        asked = [one for section in sections if (one := self._asked(section, by_document)) is not None]
        if not asked:
            return []
        states = [self._begun(one.heading) for one in asked]
        if "vector" in states[0].legs:
            asked = await self._embed(asked, states)
        outcomes = []
        for one, state in zip(asked, states, strict=True):
            outcomes.append(await self._ask(one, state))
            show_progress(self._progress, "ask", done + len(outcomes), total, "headings")
        return outcomes

    def _asked(self, section: Section, by_document: dict[object, list[SectionChunk]]) -> HeadingQuery | None:
        depth = len(section.path)
        under = [
            chunk
            for key in section.documents
            for chunk in by_document.get(key, ())
            if chunk.path[:depth] == section.path
        ]
        heading = section.path[-1]
        if section.is_code:
            own = [chunk for chunk in under if chunk.path == section.path]
            heading = docstring_of(own)
            if not heading:
                self._left_out["without_docstring"] += 1
                return None
        question = question_of(heading)
        if not words_of(question):
            self._left_out["wordless"] += 1
            return None
        parts = [(chunk, *without(heading, chunk)) for chunk in under]
        kept = [part for part in parts if words_of(part[2])]
        if not kept or len(kept) > MAX_SECTION_CHUNKS:
            self._left_out["wide" if kept else "empty"] += 1
            return None
        chunks, contexts, texts = zip(*kept, strict=True)
        return HeadingQuery(section, question, Probe(chunks, contexts, texts))

    async def _embed(self, asked: Sequence[HeadingQuery], states: Sequence[SearchState]) -> list[HeadingQuery]:
        """Add the vectors of headings and sections."""
        await embed_queries(states, self._opened)
        for state in states:
            if (failed := state.failed.get("vector")) is not None and failed.error is not None:
                raise failed.error
        texts = [text for one in asked for text in one.probe.embedded()]
        vectors = await self._vectors.of(texts, self._opened.info.embedding)
        self._embedded += len(texts)
        made, start = [], 0
        for one in asked:
            stop = start + len(one.probe.chunks)
            made.append(replace(one, probe=replace(one.probe, vectors=vectors[start:stop])))
            start = stop
        return made

    async def _ask(self, asked: HeadingQuery, state: SearchState) -> Outcome:
        probe = asked.probe

        async def look(snapshot: Snapshot) -> tuple[Standing, list[tuple[str, str]], bool]:
            found = await find_rank(snapshot, self._opened, state, probe)
            first = found.before[:TOP]
            hits = await load_results(snapshot, state.collection, first, None)
            listed = [hits[key] for key in first if key in hits]
            texts = [probe.texts[found.best], *(hit.content for hit in listed)]
            shared = _core.shared_shingles(texts)
            same = bool((shared[0, 1:] >= SAME_TEXT).any())
            return found, [(hit.source, hit.source_document) for hit in listed], same

        found, before, same = await self._opened.database.read_snapshot("ask a heading", look)
        return Outcome(asked.section, asked.heading, probe.chunks[found.best].key[1], found, before, same)

    def _checkup(
        self, choice: Choice, outcomes: list[Outcome], state: SearchState, seed: int, seconds: float
    ) -> Checkup:
        opened, asked = self._opened, len(outcomes)
        missed = [one for one in outcomes if not one.is_found]
        reasons = Counter(one.code for one in missed)
        embedding = state.collection.embedding
        return Checkup(
            collection=opened.info.names.collection,
            mode="hybrid" if len(state.legs) > 1 else state.legs[0],
            model=embedding.model if embedding is not None and "vector" in state.legs else None,
            top=TOP,
            headings=choice.headings,
            chunks=choice.chunks.total(),
            left_out=LeftOut(**self._left_out),
            result=share_of(asked - len(missed), asked),
            with_duplicates=share_of(asked - len(missed) + reasons["duplicate"], asked),
            ranks={depth: sum(is_within(one.standing.rank, depth) for one in outcomes) / asked for depth in DEPTHS},
            reasons=dict(reasons.most_common()),
            documents=of_documents(outcomes, choice.chunks),
            dominating=dominating(outcomes, choice.chunks),
            alone=alone(outcomes),
            embedded=self._embedded,
            seconds=seconds,
            seed=seed,
            notes=(*self._notes, *notes_of(outcomes)),
        )
