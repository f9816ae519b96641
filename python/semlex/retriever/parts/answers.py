"""What language models answer from: passages of a collection, within a budget of tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.answering.context import Counting, make_context
from semlex.answering.options import ContextPlan
from semlex.answering.routing import SEARCHES, route_by_chat, route_by_rules
from semlex.errors import ConfigurationError, ModelMismatchError, ValidationError
from semlex.models.tokenizer import TokenEstimate
from semlex.options.answers import DEFAULT_HITS, DEFAULT_TOKENS, ContextArguments, ContextOptions
from semlex.options.declare import check_options, declared, operation
from semlex.options.search import QuestionOptions, SearchOptions
from semlex.retriever.parts.reads import CollectionReads
from semlex.search.postprocess.diversity import diversified
from semlex.search.postprocess.surroundings import Around, read_around
from semlex.search.request import seconds_left
from semlex.types.queries import MAX_QUERY_BYTES
from semlex.types.results import SearchResult, with_route
from semlex.validation import check_parameters, kind_errors, number_errors, text_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal, Unpack

    from semlex.filters.forms import Filters
    from semlex.ingest.indexer import Indexer
    from semlex.types.answers import Context
    from semlex.types.queries import Route, RouteBy
    from semlex.types.results import SearchMode

    # A collection has a method called `list`.
    Hits = list[SearchResult]

QUESTION_OPTIONS = declared(QuestionOptions)


class CollectionAnswers(CollectionReads):
    """From a question to what it is answered from; `Collection` is one."""

    @operation("context", "read", ContextArguments, hidden=("rerank",))
    async def context(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        filters: Filters | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        **options: Unpack[ContextOptions],
    ) -> Context:
        """Return the passages that fit a question best, as numbered text for a prompt.

        The hits of a search are joined with what surrounds them in their documents: chunks that touch or overlap become
        one passage, in which no character is repeated; others are passages of their own. The best hits are taken first,
        each with its surroundings if they fit, else alone, else not (`Context.left_out`). The best hit alone is cut
        behind a sentence if it is longer than the budget.

        Args:
            question: 1 character to 4 KiB after trimming.
            tokens: Maximum number of tokens of the whole text, numbers and places included, 1 to 10,000,000. They are
                counted as those of the collection's chunks are.
            filters: As for `search`; they hold for hits, not for what surrounds them in the same documents.
            mode: As for `search`.
            rerank: As for `search`.
            **options: See `ContextOptions`. What surrounds the hits is read after the `deadline`; a `route` sets
                candidates, reranking and `per_document` if they are not given.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is, or `count` gave no number.
        """
        clock = self._resources.clock
        started, deadline = clock.monotonic(), options.get("deadline")
        check_options(ContextArguments, {"tokens": tokens, **options}, "context")
        plan, top_k = ContextPlan.of(tokens, options), options.get("top_k", DEFAULT_HITS)
        routed = await self._route(question, options.get("route"), deadline)
        search = SearchOptions(**{name: options[name] for name in QUESTION_OPTIONS if name in options})  # type: ignore[literal-required, typeddict-item]
        if routed is not None:
            way = SEARCHES[routed.kind]
            search, rerank = way.options(search, rerank, top_k)
            search.pop("group_by", None)
            search.pop("group_size", None)
            plan = replace(plan, per_document=way.group_size if plan.per_document is None else plan.per_document)
        search |= {"deadline": seconds_left(deadline, started, clock), "route": False}
        # Hits of the fallback have no surroundings in the collection.
        results = await self.search(question, top_k, filters, mode=mode, rerank=rerank, fallback=False, **search)
        results = with_route(results, routed)
        count = options.get("count")

        async def made(indexer: Indexer) -> Context:
            counting, notes = _counting(indexer) if count is None else (Counting(given=count), [])
            return await make_context(indexer.opened, results, plan, counting, notes)

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

    async def _route(
        self, question: str | None, by: RouteBy | Literal[False] | None, seconds: float | None
    ) -> Route | None:
        if by is None and question is not None:
            by = self._search_defaults.get("route")
        if not by:
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
