"""What language models answer from: passages of a collection, within a budget of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.answering.context import Counting, make_context
from semlex.answering.options import (
    DEFAULT_HITS,
    DEFAULT_NEAR_DUPLICATES,
    DEFAULT_NEIGHBOURS,
    DEFAULT_SECTIONS,
    DEFAULT_TOKENS,
    ContextOptions,
)
from semlex.answering.routing import SEARCHES, check_route, route_by_chat, route_by_rules
from semlex.errors import ConfigurationError, ModelMismatchError, ValidationError
from semlex.models.tokenizer import TokenEstimate
from semlex.retriever.parts.reads import CollectionReads
from semlex.search.postprocess.diversity import diversified
from semlex.search.postprocess.surroundings import Around, read_around
from semlex.search.request import check_deadline, seconds_left
from semlex.types.queries import MAX_QUERY_BYTES
from semlex.types.results import SearchResult, with_route
from semlex.validation import check_parameters, kind_errors, number_errors, text_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from semlex.answering.options import ContextOrder, Count
    from semlex.filters.forms import Boosts, Filters
    from semlex.ingest.indexer import Indexer
    from semlex.search.fusion import FusionMethod
    from semlex.types.answers import Context
    from semlex.types.queries import Route, RouteBy
    from semlex.types.results import SearchMode

    # A collection has a method called `list`.
    Hits = list[SearchResult]


class CollectionAnswers(CollectionReads):
    """From a question to what it is answered from; `Collection` is one."""

    async def context(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        neighbours: int = DEFAULT_NEIGHBOURS,
        sections: float | None = DEFAULT_SECTIONS,
        parents: bool = False,
        per_document: int | None = None,
        near_duplicates: float | None = DEFAULT_NEAR_DUPLICATES,
        diversity: float | None = None,
        order: ContextOrder = "score",
        count: Count | None = None,
        vector: ArrayLike | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        fusion: FusionMethod | None = None,
        weights: Mapping[str, float] | None = None,
        candidates: int | None = None,
        deadline: float | None = None,
        boost: Boosts | None = None,
        min_similarity: float | None = None,
        min_rerank: float | None = None,
        route: RouteBy | None = None,
    ) -> Context:
        """The passages that fit a question best, as numbered text for a prompt.

        The hits of a search are joined with what stands around them in their documents: chunks that touch or overlap
        become one passage, in which no character stands twice; others are passages of their own. The best hits are
        taken first, each with its surroundings where they fit, else alone, else not (`Context.left_out`). The best hit
        alone is cut behind a sentence where it is longer than the budget.

        Args:
            question: 1 character to 4 KiB after trimming.
            tokens: Most tokens of the whole text, numbers and places included, 1 to 10,000,000. They are counted as
                those of the collection's chunks are.
            top_k: Hits of the search, 1 to 200.
            filters: As for `search`; they hold for hits, not for what stands around them in the same documents.
            neighbours: How many chunks before and after each hit belong to it, 0 to 100.
            sections: A section belongs to its hits as a whole where at least this share of its chunks are hits, 0.01 to
                1; None for never.
            parents: Whether the chunk that a hit names as its parent belongs to it.
            per_document: Most hits of a document; None for any number.
            near_duplicates: A hit is left out where at least this share of its runs of five words stand in one better
                hit, 0.01 to 1; its place is in `ContextSource.same_as`. None keeps all.
            diversity: 0 to 1: how much a hit gains by being unlike those before it, by their vectors (maximal marginal
                relevance); None for the order of the search.
            order: ``score``: passages in the order of their best hits; ``document``: those of one document together, in
                its order.
            count: Counts the tokens of a text for another model, in a thread.
            vector: As for `search`; so are the others.
            mode: As for `search`.
            rerank: As for `search`.
            fusion: As for `search`.
            weights: As for `search`.
            candidates: As for `search`.
            deadline: As for `search`; what stands around the hits is read afterwards.
            boost: As for `search`.
            min_similarity: As for `search`.
            min_rerank: As for `search`.
            route: As for `search`; it sets `candidates`, `rerank` and `per_document` where they are not given.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is, or `count` gave no number.
        """
        clock = self._resources.clock
        started = clock.monotonic()
        check_deadline(deadline)
        routed = await self._route(question, self._search_defaults.routing(question, route), deadline)
        if routed is not None:
            way = SEARCHES[routed.kind]
            candidates, rerank = way.depth(candidates, top_k, way.group_size), way.reranks(rerank, min_rerank)
            per_document = way.group_size if per_document is None else per_document
        options = ContextOptions.checked(
            tokens=tokens,
            top_k=top_k,
            neighbours=neighbours,
            sections=sections,
            parents=parents,
            per_document=per_document,
            near_duplicates=near_duplicates,
            diversity=diversity,
            order=order,
            count=count,
        )
        results = await self.search(
            question,
            top_k,
            filters,
            vector=vector,
            mode=mode,
            rerank=rerank,
            fusion=fusion,
            weights=weights,
            candidates=candidates,
            deadline=seconds_left(deadline, started, clock),
            boost=boost,
            min_similarity=min_similarity,
            min_rerank=min_rerank,
            fallback=False,  # its hits have nothing around them in the collection
            route=False,
        )
        results = with_route(results, routed)

        async def made(indexer: Indexer) -> Context:
            counting, notes = _counting(indexer) if count is None else (Counting(given=count), [])
            return await make_context(indexer.opened, results, options, counting, notes)

        return await self._reading(made)

    async def diversify(self, hits: Sequence[SearchResult], diversity: float = 0.5) -> Hits:
        """Hits in another order: each as relevant, and as unlike those before it, as possible, by their stored vectors.

        This is maximal marginal relevance; the relevance is that of the scores that ordered the hits, from 1 for the
        best to 0 for the last. A hit without a vector keeps its place.

        Args:
            hits: Of a search of this collection, best first.
            diversity: 0 (the order that they have) to 1 (as unlike as possible).

        Raises:
            ConfigurationError: A hit is none, or the number is out of bounds.
        """
        check_parameters(
            kind_errors("hits", hits, list, tuple),
            number_errors("diversity", diversity, 0, 1),
        )
        check_parameters(*(kind_errors(f"hits[{row}]", hit, SearchResult) for row, hit in enumerate(hits)))
        await self._searched()
        _, vectors = await self._reading(lambda indexer: read_around(indexer.opened, hits, Around(), with_vectors=True))
        return diversified(hits, vectors, diversity)

    async def _route(self, question: str | None, by: RouteBy | None, seconds: float | None) -> Route | None:
        check_route(by)
        if by is None:
            return None
        if question is None:
            raise ConfigurationError("route needs a question as text: leave it out for a vector alone")
        if errors := text_errors("question", question, max_bytes=MAX_QUERY_BYTES, blank=False):
            raise ValidationError(errors)
        if by == "rules":
            return route_by_rules(question)
        resources = await self._resources.ready()
        model = (await resources.chat_model()).model
        if model is None:
            raise ConfigurationError("route='chat' needs a language model: name one with chat_model= or --chat-model")
        return await route_by_chat(question, model, resources.executor, resources.clock, seconds)


def _counting(indexer: Indexer) -> tuple[Counting, list[str]]:
    """What counts the tokens of a collection; words do where its own way needs a model that is not open here."""
    try:
        counter = indexer.token_counter()
    except ModelMismatchError:
        counter = TokenEstimate()
        own = indexer.collection.settings.token_counter
        note = f"tokens are estimated by words: what counts them by {own} is not open here; count= takes a function"
        return Counting(counter.counter_name, counter), [note]
    return Counting(counter.counter_name, counter), []
