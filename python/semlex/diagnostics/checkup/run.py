"""A checkup: headings are drawn, asked batch by batch, and what came of them is put together."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from semlex import _core
from semlex.diagnostics.checkup.findings import (
    DEPTHS,
    TOP,
    Outcome,
    dominating,
    is_within,
    notes_of,
    of_documents,
    share_of,
    weight_checkup,
)
from semlex.diagnostics.checkup.headings import MAX_SECTION_CHUNKS, choose, docstring_of, question_of, without, words_of
from semlex.diagnostics.checkup.rank import Probe, find_rank
from semlex.embedding.static import StaticEmbedder
from semlex.errors import ConfigurationError
from semlex.ingest.embed import DocumentVectors
from semlex.ingest.progress import Progress
from semlex.search.fusion import DEFAULT_VECTOR_WEIGHT
from semlex.search.pipeline import SearchPipeline
from semlex.search.query_vector import embed_queries
from semlex.search.request import Request
from semlex.store.query.chunks import load_results
from semlex.store.query.surroundings import read_section_chunks, read_sections
from semlex.types.checkups import Checkup, LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semlex.diagnostics.checkup.headings import Choice, Section
    from semlex.diagnostics.checkup.rank import Standing
    from semlex.open_collection import OpenCollection
    from semlex.search.state import SearchState
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.surroundings import SectionChunk
    from semlex.types.results import SearchMode

# Headings of a checkup, by how fast their chunks are embedded anew.
FAST_SAMPLE, SLOW_SAMPLE = 2_000, 200
# Headings that are read and embedded together. The first batch is small: it tells how long the rest takes.
BATCH, FIRST_BATCH = 32, 8
# The text of a chunk stands in another one where so much of it does.
SAME_TEXT = 0.8


@dataclass(frozen=True, slots=True)
class Asked:
    """A heading that is asked.

    Attributes:
        section: Its section.
        heading: As it is asked.
        probe: The section without it.
    """

    section: Section
    heading: str
    probe: Probe


class CheckupRun:
    """One checkup of an open collection; it only reads.

    Args:
        estimated: Called once, with the seconds that the rest will take.
    """

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
        """Asks the headings."""
        started = time.perf_counter()
        opened = self._opened
        state = self._begun("heading")
        rows = await opened.database.read_snapshot(
            "read the headings", lambda one: read_sections(one, state.collection)
        )
        choice = choose(rows, seed)
        self._refuse(choice, state)
        if "vector" in state.legs:
            await embed_queries([state], opened)  # a model that has to be loaded first is not part of the estimate
        wanted = sample or (SLOW_SAMPLE if self._is_slow(state) else FAST_SAMPLE)
        outcomes: list[Outcome] = []
        taken = 0
        began = time.perf_counter()
        while taken < len(choice.sections) and len(outcomes) < wanted:
            size = min(BATCH if taken else FIRST_BATCH, wanted - len(outcomes))
            drawn = choice.sections[taken : taken + size]
            outcomes += await self._batch(drawn, len(outcomes), min(wanted, len(choice.sections)))
            if not taken and self._estimated is not None:
                rest = min(wanted, len(choice.sections)) - len(drawn)
                self._estimated((time.perf_counter() - began) / len(drawn) * rest)
            taken += len(drawn)
        if not outcomes:
            raise ConfigurationError(
                f"none of the {choice.headings:,} headings of collection {opened.info.names.collection!r} can be "
                f"asked: {choice.repeated:,} stand in three or more places, {choice.wide:,} above more than "
                f"{MAX_SECTION_CHUNKS} chunks, and the others have no word, or nothing below them; `semlex eval` takes "
                "questions of your own"
            )
        self._left_out["not_drawn"] = len(choice.sections) - taken
        return self._checkup(choice, outcomes, state, seed, time.perf_counter() - started)

    def _begun(self, text: str) -> SearchState:
        opened = self._opened
        request = Request.checked(
            names=opened.info.names,
            query=text,
            vector=None,
            top_k=1,
            filters=None,
            mode=self._mode,
            fusion="completed",
            weights=None,
            rrf_k=60.0,
            candidates=None,
            ef_search=None,
            deadline=None,
            rerank=False,
        )
        state = self._pipeline.begin(request)
        self._notes |= dict.fromkeys(state.warnings)
        return state

    def _refuse(self, choice: Choice, state: SearchState) -> None:
        name, settings = self._opened.info.names.collection, self._opened.info.settings
        if not choice.chunks.total():
            raise ConfigurationError(
                f"collection {name!r} is empty, so nothing can be asked: semlex index PATH --collection {name} fills it"
            )
        if not choice.headings:
            raise ConfigurationError(
                f"no chunk of collection {name!r} has a heading above it, so a checkup has nothing to ask; `semlex "
                "eval` takes questions of your own"
            )
        if "keyword" in state.legs and state.collection.keyword.index is None:
            raise ConfigurationError(
                f"the keyword engine {settings.keyword_engine!r} does not tell what a text would score without its "
                "heading; a checkup of words needs the engine 'bm25', mode='vector' (--mode vector) needs none"
            )

    def _is_slow(self, state: SearchState) -> bool:
        embedder = self._opened.models.embedder
        return "vector" in state.legs and not isinstance(embedder, StaticEmbedder)

    async def _batch(self, sections: Sequence[Section], done: int, total: int) -> list[Outcome]:
        """Asks some headings; those that turn out to be no questions are counted."""
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
            if self._progress is not None:
                self._progress(Progress("ask", done + len(outcomes), total, "headings"))
        return outcomes

    def _asked(self, section: Section, by_document: dict[object, list[SectionChunk]]) -> Asked | None:
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
        return Asked(section, question, Probe(chunks, contexts, texts))

    async def _embed(self, asked: Sequence[Asked], states: Sequence[SearchState]) -> list[Asked]:
        """The same with vectors, of the questions and of the sections."""
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

    async def _ask(self, asked: Asked, state: SearchState) -> Outcome:
        probe = asked.probe

        async def look(snapshot: Snapshot) -> tuple[Standing, list[tuple[str, str]], bool]:
            found = await find_rank(snapshot, self._opened, state, probe)
            first = found.before[:TOP]
            hits = await load_results(snapshot.connection, state.collection, first, None)
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
        left_out = self._left_out
        weight = getattr(opened.models.embedder, "fusion_weight", DEFAULT_VECTOR_WEIGHT)
        embedding = state.collection.embedding
        return Checkup(
            collection=opened.info.names.collection,
            mode="hybrid" if len(state.legs) > 1 else state.legs[0],
            model=embedding.model if embedding is not None and "vector" in state.legs else None,
            top=TOP,
            headings=choice.headings,
            chunks=choice.chunks.total(),
            left_out=LeftOut(
                choice.repeated,
                choice.wide + left_out["wide"],
                choice.wordless + left_out["wordless"],
                left_out["without_docstring"],
                left_out["empty"],
                left_out["not_drawn"],
            ),
            result=share_of(asked - len(missed), asked),
            with_duplicates=share_of(asked - len(missed) + reasons["duplicate"], asked),
            ranks={depth: sum(is_within(one.standing.rank, depth) for one in outcomes) / asked for depth in DEPTHS},
            reasons=dict(reasons.most_common()),
            documents=of_documents(outcomes, choice.chunks),
            dominating=dominating(outcomes, choice.chunks),
            weight=weight_checkup(outcomes, weight),
            embedded=self._embedded,
            seconds=seconds,
            seed=seed,
            notes=(*self._notes, *notes_of(outcomes)),
        )
