"""Questions answered: a context, and what is written from it, sentence by sentence."""

from __future__ import annotations

import time
from contextlib import aclosing
from types import NoneType
from typing import TYPE_CHECKING, cast

from semlex.errors import ConfigurationError, ValidationError
from semlex.options.answers import DEFAULT_TOKENS, AnswerArguments, AnswerOptions
from semlex.options.declare import check_options, operation
from semlex.retriever.parts.answers import CollectionAnswers
from semlex.store.keyword.base import analyzer_of
from semlex.types.answers import MIN_COVERAGE, MIN_SIMILARITY, Context
from semlex.types.queries import MAX_QUERY_BYTES
from semlex.validation import check_parameters, kind_errors, text_errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Unpack

    from semlex import _core
    from semlex.parameters import CollectionSettings
    from semlex.types.answers import Answer, AnswerSentence


class CollectionAsking(CollectionAnswers):
    """Answers with citations; `Collection` is one."""

    @operation("answer", "read", AnswerArguments, hidden=("rerank",))
    async def answer(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        context: Context | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Answer:
        """Answer a question from the collection's documents alone, with every quote looked up.

        With a `chat_model` the answer is written by that model, which is sent the question and the passages. Without
        one it consists of up to three sentences of the documents, chosen by the question's words.

        There is an answer or a reason why not (`Answer.refused`): nothing was found, the passages found barely cover
        the question, or the model finds no answer in them. If the model's server fails, the answer has a warning and
        sentences of the documents instead. What the model wrote without a quote that is in the documents is in the
        answer and in `Answer.unsupported`.

        Args:
            question: As for `context`.
            tokens: As for `context`.
            context: Passages to answer from, made by `context`; no option of the search beside it.
            **options: See `AnswerOptions`. The question is refused if both minimums are missed, as far as they are
                known; 0 in one of them: never. The route is in ``context.results.route``.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is, or the chat model's name cannot be used.
        """
        events = self.answer_stream(question, tokens, context=context, **options)
        async with aclosing(events):
            *_, answer = [event async for event in events]
        return cast("Answer", answer)

    def answer_stream(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        context: Context | None = None,
        **options: Unpack[AnswerOptions],
    ) -> AsyncGenerator[AnswerSentence | Answer, None]:
        """Answer sentence by sentence while the answer is written: each after its citations were looked up.

        Args:
            question: As for `answer`.
            tokens: As for `answer`.
            context: As for `answer`.
            **options: As for `answer`.

        Returns:
            Each sentence, and at the end the answer as a whole.

        Raises:
            ValidationError: As for `answer`.
            ConfigurationError: As for `answer`.
        """
        if errors := text_errors("question", question, max_bytes=MAX_QUERY_BYTES, blank=False):
            raise ValidationError(errors)
        check_parameters(kind_errors("context", context, Context, NoneType))
        check_options(AnswerArguments, {"tokens": tokens, **options}, "answer")
        limits = options.pop("min_coverage", MIN_COVERAGE), options.pop("min_similarity", MIN_SIMILARITY)
        search = {name: value for name, value in options.items() if value is not None}
        if context is not None and search:
            raise ConfigurationError(f"context= has made its search already: give {', '.join(search)} to `context`")

        async def events() -> AsyncGenerator[AnswerSentence | Answer, None]:
            from semlex.answering.answer import Answering, answer_events  # noqa: PLC0415 - most programs only search

            started = time.perf_counter()
            await self._readable()
            model = (await self._resources.chat_model()).model
            passages = context
            if passages is None:
                passages = await self.context(question, tokens, **search)  # type: ignore[arg-type]
            settings = (await self._readable()).collection.settings
            analyzer, executor = _analyzer(settings), self._resources.executor
            answering = Answering(analyzer, executor, model, *limits, started)
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
