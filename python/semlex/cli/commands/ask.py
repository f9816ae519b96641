"""``semlex ask``: an answer with citations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.commands.answers import surroundings
from semlex.cli.commands.search import Question
from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.options import (
    INT,
    Filter,
    NearDuplicates,
    Parents,
    RouteOption,
    Sections,
    filter_of,
    questions_of,
    share,
    whole_number,
)
from semlex.cli.output import number, print_json, print_note
from semlex.cli.terminal import inform, one_line, output, printable
from semlex.types.answers import MIN_COVERAGE, MIN_SIMILARITY

if TYPE_CHECKING:
    from semlex.types.answers import Answer, AnswerSentence

Least = Annotated[
    float,
    typer.Option(
        parser=share, metavar="SHARE", help="0 to 1; no answer where the hits are below this and the other one."
    ),
]


@with_context("collection", ..., *SERVER, "embedding_model", "device", "reranker_model", "chat_model")
def ask(
    context: Context,
    question: Question,
    *,
    tokens: Annotated[
        int, typer.Option("--tokens", parser=whole_number, metavar=INT, help="Most tokens of the passages.")
    ] = 4000,
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", parser=whole_number, metavar=INT, help="Hits that it is made from.")
    ] = 10,
    filters: Filter = None,
    route: RouteOption = None,
    sections: Sections = None,
    parents: Parents = False,
    near_duplicates: NearDuplicates = None,
    min_coverage: Least = MIN_COVERAGE,
    min_similarity: Least = MIN_SIMILARITY,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each sentence as soon as its citations were looked up.")
    ] = False,
) -> None:
    """Answer a question from a collection, with citations that were looked up.

    With --chat-model a language model writes the answer; it is sent the question and the passages. Without one, the
    answer is up to three sentences of the documents.
    """
    searched: dict[str, Any] = {"top_k": top_k, "filters": filter_of(filters), "route": route}
    least: dict[str, Any] = {"min_coverage": min_coverage, "min_similarity": min_similarity}
    around = surroundings(sections, near_duplicates, parents=parents)
    options = {} if around else searched
    questions = questions_of(question)
    with context.opened(searches=True) as retriever:
        for asked in questions:
            if len(questions) > 1 and not context.as_json:
                output.print(f"[bold underline]{escape(one_line(asked))}[/bold underline]")
            if around:
                options["context"] = retriever.context(asked, tokens, **searched, **around)
            for event in retriever.answer_stream(asked, tokens, **options, **least):
                _print_event(event, stream=stream, as_json=context.as_json)


def _print_event(event: AnswerSentence | Answer, *, stream: bool, as_json: bool) -> None:
    from semlex.types.answers import Answer

    if not isinstance(event, Answer):
        if stream:
            _print_sentence(event, as_json=as_json)
    elif as_json:
        print_json({"type": "answer", **event.to_dict()} if stream else event.to_dict())
    else:
        if not stream:
            for sentence in event.sentences:
                _print_sentence(sentence, as_json=False)
        _print_end(event)


def _print_sentence(sentence: AnswerSentence, *, as_json: bool) -> None:
    if as_json:
        print_json({"type": "sentence", **sentence.to_dict()})
        return
    mark = "" if sentence.is_supported else "  [yellow](unsupported)[/yellow]"
    output.print(f"{escape(printable(sentence.numbered))}{mark}")


def _print_end(answer: Answer) -> None:
    """Where the quotes stand, and how the answer came about."""
    if answer.refused is not None:
        output.print(f"no answer: {escape(answer.refused)}")
    headings = {source.number: source.headings for source in answer.context.sources}
    for citation in dict.fromkeys(answer.citations):
        above = headings.get(citation.source)
        line = f"[{citation.source}] {citation.place}" + (f"  {above}" if above else "")
        quote = "" if answer.model is None else f': "{citation.quote}"'
        verdict = "" if citation.is_verified else f" ({citation.verdict})"
        output.print(f"  [dim]{escape(one_line(line + quote))}[/dim][yellow]{verdict}[/yellow]")
    for warning in answer.warnings:
        print_note(warning)
    wrote = "sentences of the documents" if answer.model is None else f"written by {answer.model}"
    counted = [answer.usage.prompt_tokens, answer.usage.completion_tokens]
    usage = "" if None in counted else f" · {counted[0]:,} tokens read, {counted[1]:,} written"
    if answer.sentences:
        inform(f"[dim]confidence {number(answer.confidence, 2)} · {escape(one_line(wrote))}{usage}[/dim]")
    if answer.context.results.route is not None:
        inform(f"[dim]route: {escape(one_line(str(answer.context.results.route)))}[/dim]")
    timings = ", ".join(f"{name} {milliseconds:.1f} ms" for name, milliseconds in answer.timings.items())
    inform(f"[dim]{timings}[/dim]")
