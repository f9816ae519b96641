"""Questions answered: a context, and what is written from it, sentence by sentence."""

from __future__ import annotations

import time
from contextlib import aclosing
from types import NoneType
from typing import TYPE_CHECKING, cast

from semlex.answering.options import DEFAULT_HITS, DEFAULT_TOKENS
from semlex.answering.routing import check_route
from semlex.errors import ConfigurationError, ValidationError
from semlex.retriever.parts.answers import CollectionAnswers
from semlex.store.keyword.bm25.analyzers import analyzer_of
from semlex.types.answers import MIN_COVERAGE, MIN_SIMILARITY, Context
from semlex.types.queries import MAX_QUERY_BYTES
from semlex.validation import check_parameters, kind_errors, number_errors, text_errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from semlex import _core
    from semlex.filters.forms import Filters
    from semlex.parameters import CollectionSettings
    from semlex.types.answers import Answer, AnswerSentence
    from semlex.types.queries import RouteBy
    from semlex.types.results import SearchMode


class CollectionAsking(CollectionAnswers):
    """Answers with citations; `Collection` is one."""

    async def answer(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        context: Context | None = None,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        min_coverage: float = MIN_COVERAGE,
        min_similarity: float = MIN_SIMILARITY,
        route: RouteBy | None = None,
    ) -> Answer:
        """An answer to a question, from the collection's documents alone, with every quote looked up.

        With a `chat_model` it is written by that model, which is sent the question and the passages. Without one it
        consists of up to three sentences of the documents, chosen by the question's words.

        There is an answer or a reason why not (`Answer.refused`): nothing was found, the hits hardly speak of what is
        asked, or the model finds no answer in them. A model's server that fails is a warning, and sentences of the
        documents stand in for it. What the model wrote without a quote that stands in the documents is in the answer,
        and in `Answer.unsupported`.

        Args:
            question: As for `context`.
            tokens: As for `context`.
            context: What is answered from, made by `context` with other options; none of the search's beside it.
            top_k: As for `context`.
            filters: As for `context`.
            mode: As for `context`.
            rerank: As for `context`.
            min_coverage: 0 to 1. There is no answer where `SearchResults.coverage` is below this and
                `SearchResults.best_similarity` below the other, as far as they are known. 0 in one of both: always one.
            min_similarity: 0 to 1, for `SearchResults.best_similarity`.
            route: As for `context`; the result has it in ``context.results.route``.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is, or the chat model's name cannot be used.
        """
        events = self.answer_stream(
            question,
            tokens,
            context=context,
            top_k=top_k,
            filters=filters,
            mode=mode,
            rerank=rerank,
            min_coverage=min_coverage,
            min_similarity=min_similarity,
            route=route,
        )
        async with aclosing(events):
            *_, answer = [event async for event in events]
        return cast("Answer", answer)

    def answer_stream(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        context: Context | None = None,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        min_coverage: float = MIN_COVERAGE,
        min_similarity: float = MIN_SIMILARITY,
        route: RouteBy | None = None,
    ) -> AsyncGenerator[AnswerSentence | Answer, None]:
        """`answer`, sentence by sentence while it is written: each after its citations were looked up.

        Args:
            question: As for `answer`; so are the others.
            tokens: As for `answer`.
            context: As for `answer`.
            top_k: As for `answer`.
            filters: As for `answer`.
            mode: As for `answer`.
            rerank: As for `answer`.
            min_coverage: As for `answer`.
            min_similarity: As for `answer`.
            route: As for `answer`.

        Returns:
            Each sentence, and at the end the answer as a whole.

        Raises:
            ValidationError: As for `answer`.
            ConfigurationError: As for `answer`.
        """
        if errors := text_errors("question", question, max_bytes=MAX_QUERY_BYTES, blank=False):
            raise ValidationError(errors)
        check_parameters(
            kind_errors("context", context, Context, NoneType),
            number_errors("min_coverage", min_coverage, 0, 1),
            number_errors("min_similarity", min_similarity, 0, 1),
        )
        check_route(route)
        options = {"top_k": top_k, "filters": filters, "mode": mode, "rerank": rerank, "route": route}
        if context is not None and options != {
            "top_k": DEFAULT_HITS,
            "filters": None,
            "mode": None,
            "rerank": None,
            "route": None,
        }:
            raise ConfigurationError(
                "a context is made already: give top_k, filters, mode, rerank and route to `context`"
            )

        async def events() -> AsyncGenerator[AnswerSentence | Answer, None]:
            from semlex.answering.answer import Answering, answer_events  # noqa: PLC0415 - most programs only search

            started = time.perf_counter()
            await self._readable()
            model = (await self._resources.chat_model()).model
            passages = context
            if passages is None:
                passages = await self.context(
                    question, tokens, top_k=top_k, filters=filters, mode=mode, rerank=rerank, route=route
                )
            settings = (await self._readable()).collection.settings
            analyzer, executor = _analyzer(settings), self._resources.executor
            answering = Answering(analyzer, executor, model, min_coverage, min_similarity, started)
            async with aclosing(answer_events(question, passages, answering)) as answered:
                async for event in answered:
                    yield event

        return events()


def _analyzer(settings: CollectionSettings) -> _core.Analyzer:
    """The analyzer of a collection's language; one that only Postgres knows has words as they are written."""
    try:
        return analyzer_of(settings.language, True)
    except ConfigurationError:
        return analyzer_of("simple", True)
