"""``semlex ask`` and ``semlex context``: an answer with citations, or passages for a prompt."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.commands.search import Question
from semlex.cli.context import READER, Context, with_context
from semlex.cli.options import Flags, questions_of
from semlex.cli.output import number, print_json, print_note, print_route, summary_object, timings_line, write_lines
from semlex.cli.reports import usage_words
from semlex.cli.terminal import counted, inform, one_line, output, printable

if TYPE_CHECKING:
    from semlex.types.answers import Answer, AnswerSentence
    from semlex.types.answers import Context as Passages

AROUND = ("sections", "parents", "near_duplicates")


@with_context("collection", ..., *READER, "embedding_model", "device", "reranker_model", "chat_model")
def ask(
    context: Context,
    question: Question,
    *,
    options: Annotated[dict[str, Any], Flags("options.answers:AnswerArguments", without=("mode",))],
    around: Annotated[dict[str, Any], Flags("options.answers:ContextArguments", only=AROUND)],
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each sentence as soon as its citations are checked.")
    ] = False,
) -> None:
    """Answer a question from a collection, with citations that semlex has checked.

    With --chat-model, a language model writes the answer; semlex sends it the question and the passages. Without one,
    the answer is up to three sentences of the documents.
    """
    given = {name: options.pop(name) for name in ("tokens",) if name in options}
    searched = {
        name: options.pop(name)
        for name in ("top_k", "filters", "route", "terms", "rewrite")
        if around and name in options
    }
    questions = questions_of(question)
    with context.opened(searches=True) as retriever:
        for asked in questions:
            if len(questions) > 1 and not context.as_json:
                output.print(f"[bold underline]{escape(one_line(asked))}[/bold underline]")
            if around:
                options["context"] = retriever.context(asked, **given, **searched, **around)
            for event in retriever.answer_stream(asked, **given, **options):
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
    """Print the places of the quotes, and how the answer was made."""
    if answer.refused is not None:
        output.print(escape(one_line(answer.refused)))
    headings = {source.number: source.headings for source in answer.context.sources}
    lines = []
    for citation in answer.citations:
        above = headings.get(citation.source)
        line = f"[{citation.source}] {citation.location}" + (f"  {above}" if above else "")
        quote = "" if answer.model is None else f': "{citation.quote}"'
        verdict = "" if citation.is_verified else f" ({citation.verdict})"
        lines.append(f"  [dim]{escape(one_line(line + quote))}[/dim][yellow]{verdict}[/yellow]")
    for line in dict.fromkeys(lines):
        output.print(line)
    print_note(*answer.warnings)
    wrote = "passages of the documents, not an answer" if answer.model is None else f"written by {answer.model}"
    if answer.sentences:
        how = "" if answer.documented is None else f"documented {number(answer.documented, 2)} · "
        usage = usage_words(answer.usage)
        inform(f"[dim]{how}{escape(one_line(wrote))}{f' · {usage}' if usage else ''}[/dim]")
    print_route(answer.context.results)
    inform(f"[dim]{timings_line(answer.timings)}[/dim]")


@with_context("collection", ..., *READER, "embedding_model", "device", "tokenizer", "reranker_model", "chat_model")
def context(
    shared: Context,
    question: Question,
    *,
    options: Annotated[dict[str, Any], Flags("options.answers:ContextArguments")],
) -> None:
    """Print the passages that fit a question best, numbered, for the prompt of a language model."""
    questions = questions_of(question)
    with shared.opened(searches=True) as retriever:
        for asked in questions:
            made = retriever.context(asked, **options)
            beside = {} if list(question) != ["-"] else {"question": asked}
            value = beside | made.to_dict() | {"search": summary_object(made.results)}
            shared.emit(value, partial(_show_context, made))


def _show_context(made: Passages) -> None:
    """Print the text unchanged to stdout, for a pipe, and everything else to stderr."""
    if made.text:
        write_lines([printable(made.text)])
    print_note(*made.warnings)
    print_route(made.results)
    left_out = f"; {counted(len(made.left_out), 'hit')} left out" if made.left_out else ""
    inform(f"[dim]{counted(len(made.sources), 'passage')}, {counted(made.tokens, 'token')}{left_out}[/dim]")
