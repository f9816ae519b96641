"""Results and reports as text, or as one JSON object a line."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from semlex.cli.columns import chosen_columns, json_text
from semlex.cli.terminal import counted, inform, marked_text, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.ingest.progress import IndexReport
    from semlex.types.reports import EnrichmentReport
    from semlex.types.results import SearchResult, SearchResults

EXCERPT_LINES = 12
INDENT = 3
SHOWN_PROBLEMS = 20


def print_json(value: dict[str, Any]) -> None:
    """Prints one object on one line, or what ``--fields`` chooses of it."""
    columns = chosen_columns()
    write_lines([json_text(value)] if columns is None else columns.lines(value))


def write_lines(lines: Iterable[str]) -> None:
    """Writes lines for programs, as they are."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def result_object(result: SearchResult) -> dict[str, Any]:
    """A hit as a JSON object."""
    names = [field.name for field in dataclasses.fields(result)]
    return {name: getattr(result, name) for name in names if name not in ("child_ids", "created_at", "updated_at")}


def summary_object(results: SearchResults) -> dict[str, Any]:
    """How the hits were found, as a JSON object."""
    return {
        "hits": len(results),
        "mode": results.mode,
        "requested_mode": results.requested_mode,
        "embedding_model": results.embedding_model,
        "reranker_model": results.reranker_model,
        "fusion": results.fusion,
        "legs": {name: dataclasses.asdict(leg) for name, leg in results.legs.items()},
        "best_similarity": results.best_similarity,
        "coverage": results.coverage,
        "query_cached": results.query_cached,
        "timings": {name: round(milliseconds, 3) for name, milliseconds in results.timings.items()},
        "warnings": results.warnings,
        "next_cursor": results.next_cursor,
        "route": None if results.route is None else dataclasses.asdict(results.route),
    } | ({} if results.explanation is None else {"explanation": dataclasses.asdict(results.explanation)})


def print_many(questions: Sequence[str], answers: Sequence[SearchResults], *, as_json: bool) -> None:
    """Prints the hits of many questions; as JSON, each line has its question with its number in ``query``, from 1."""
    for number, (question, results) in enumerate(zip(questions, answers, strict=True), start=1):
        if as_json:
            _print_objects(results, {"query": number, "question": question})
        else:
            output.print(f"[bold underline]{escape(one_line(question))}[/bold underline]")
            print_results(results, as_json=False)


def _print_objects(results: SearchResults, beside: dict[str, Any]) -> None:
    documents = {id(hit): {"document": document.rank} for document in results.documents for hit in document.hits}
    for result in results:
        print_json({"type": "hit", **beside, **documents.get(id(result), {}), **result_object(result)})
    print_json({"type": "summary", **beside, **summary_object(results)})


def print_results(results: SearchResults, *, as_json: bool) -> None:
    """Prints hits, best first, and how they were found."""
    if as_json:
        _print_objects(results, {})
        return
    names = {id(document.hits[0]): document for document in results.documents}
    for result in results:
        if (document := names.get(id(result))) is not None:
            output.print(f"[bold underline]{escape(one_line(document.source_document or result.id))}[/bold underline]")
        heading = escape(one_line(" > ".join(result.heading_path)))
        location = escape(one_line(location_of(result)))
        output.print(f"[bold]{result.rank}. {location}[/bold]" + (f"  [cyan]{heading}[/cyan]" if heading else ""))
        output.print(f"   {_scores(result)}", style="dim")
        _print_excerpt(result)
    if not results:
        output.print("nothing found")
    for warning in results.warnings:
        print_note(warning)
    figures = best_match(results)
    if figures:
        inform(f"[dim]{figures}[/dim]")
    for leg in results.legs.values():
        if leg.share is not None:
            inform(f"[dim]{leg}[/dim]")
    _print_search(results)


def print_statement(statement: str, results: SearchResults) -> None:
    """Prints a statement that holds hits; what is to be known of them goes to stderr."""
    sys.stdout.write(f"{statement}\n")
    sys.stdout.flush()
    for warning in results.warnings:
        print_note(warning)
    _print_search(results)


def _print_search(results: SearchResults) -> None:
    """How the hits were found, and what leads on."""
    model = f" · {results.embedding_model}" if results.embedding_model else ""
    fusion = f" · fused by {results.fusion}" if results.fusion else ""
    rerank = f" · reranked by {results.reranker_model}" if results.reranker_model else ""
    timings = ", ".join(f"{name} {milliseconds:.1f} ms" for name, milliseconds in results.timings.items())
    inform(f"[dim]{results.mode} search{escape(model)}{fusion}{escape(rerank)} · {timings}[/dim]")
    if results.route is not None:
        inform(f"[dim]route: {escape(one_line(str(results.route)))}[/dim]")
    if results.next_cursor is not None:
        inform(f"[dim]next page: semlex search --after {results.next_cursor}[/dim]")


def print_timings(results: SearchResults) -> None:
    """The milliseconds of each stage as a table, on the error stream; stages inside of another overlap."""
    width = max((len(name) for name in results.timings), default=0)
    for name, milliseconds in results.timings.items():
        messages.print(f"{name:<{width}}  {milliseconds:9.1f} ms")


def location_of(result: SearchResult) -> str:
    """File and line of a hit, relative to the working directory when below it, else absolute; else its id."""
    location = result.source_document or result.id
    if result.root:
        path = Path(result.root) / location
        location = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    line = result.match_line or result.line
    return location if line is None else f"{location}:{line}"


def best_match(results: SearchResults) -> str:
    """Best similarity and coverage of the hits, in words; empty when neither is known."""
    similarity, coverage = results.best_similarity, results.coverage
    parts = [] if similarity is None else [f"best similarity {number(similarity, 2)}"]
    if coverage is not None:
        share = f"{coverage:.0%}".replace("%", " %")
        parts.append(f"the best hit holds {share} of the question's words, counted by weight")
    return "; ".join(parts)


def number(value: float, digits: int) -> str:
    """A number without a negative zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _scores(result: SearchResult) -> str:
    parts = []
    for name, rank, score, digits in (
        ("vector", result.vector_rank, result.vector_score, 3),
        ("keyword", result.keyword_rank, result.keyword_score, 4),
    ):
        if score is not None:
            parts.append(name + (f" #{rank}" if rank is not None else "") + f" ({number(score, digits)})")
    if result.fused_score is not None:
        by_vector, by_words = result.vector_contribution, result.keyword_contribution
        sum_of = ""
        if by_vector is not None and by_words is not None:
            sum_of = f" = {number(by_vector, 3)} vector + {number(by_words, 3)} keyword"
        if result.boost is not None:
            sign = "times" if result.fused_score >= 0 else "divided by"
            sum_of = f" = ({sum_of[3:]}) {sign} {result.boost:g}" if sum_of else f" (boost {result.boost:g})"
        parts.append(f"fused {number(result.fused_score, 5)}{sum_of}")
    if result.rerank_score is not None:
        parts.append(f"rerank {number(result.rerank_score, 3)}")
    if result.confidence is not None:
        parts.append(f"confidence {number(result.confidence, 2)}")
    return " · ".join(parts)


def _print_excerpt(result: SearchResult) -> None:
    """The lines of the excerpt that are not blank; matched words in colour on a terminal, the bare text in a pipe."""
    text = marked_text(result.excerpt, result.content, "bold yellow")
    lines = [line for line in text.split("\n") if line.plain.strip()]
    margin = min((len(line.plain) - len(line.plain.lstrip()) for line in lines[1:]), default=0)
    for line in lines[:EXCERPT_LINES]:
        line.rstrip()
        indented = len(line.plain) - len(line.plain.lstrip())
        shown = line[min(margin, indented) :]
        if output.is_terminal:
            output.print(Padding(shown, (0, 0, 0, INDENT), expand=False), soft_wrap=False, overflow="fold")
        else:
            output.print(Text(" " * INDENT).append_text(shown))


def print_note(text: str) -> None:
    """Prints what should be known, on stderr."""
    messages.print(f"[yellow]note:[/yellow] {escape(text)}")


def print_report(report: IndexReport, *, as_json: bool) -> None:
    """Prints what an indexing run did."""
    if as_json:
        print_json(dataclasses.asdict(report))
        return
    inform(
        f"{report.added:,} new, {report.changed:,} changed, {report.unchanged:,} unchanged, {report.failed:,} failed; "
        f"{counted(report.chunks, 'chunk')} written, {report.embedded:,} embedded, {report.seconds:.1f} s"
    )
    if not (report.added or report.changed or report.unchanged or report.failed or report.vanished):
        print_note("no file was found there that could be read: see --include and --exclude")
    for source, count in report.vanished.items():
        gone = "is gone; its chunks" if count == 1 else "are gone; their chunks"
        remedy = f"semlex delete --source {shlex.quote(source)} --vanished"
        print_note(f"{counted(count, 'file')} of {one_line(source)} {gone} are still found, until: {remedy}")
    print_notes(report)


def print_lines(report: EnrichmentReport) -> None:
    """Prints what became of lines about chunks."""
    usage = report.usage
    if usage.prompt_tokens is not None and usage.completion_tokens is not None:
        told = f"; {usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} written"
    else:
        told = ""
    chunks = counted(report.chunks, "chunk")
    inform(f"lines about {report.written:,} of {chunks}, by {escape(one_line(report.model))}{told}")
    if lacking := report.failed + report.left:
        not_asked = f", {report.left:,} of them not asked about any more" if report.left else ""
        reason = one_line(report.first_failure or "")
        print_note(f"{counted(lacking, 'chunk')} got no line{not_asked}: {reason}; semlex enrich asks again")


def print_notes(report: IndexReport) -> None:
    """Prints what did not go as asked in a run over files, on stderr."""
    if report.skipped:
        from semlex.cli.skipped import skipped_line

        inform(escape(one_line(skipped_line(report.skipped))))
    if report.repaired:
        characters = counted(report.repaired_characters, "character")
        print_note(f"{characters} of {counted(report.repaired, 'file')} could not be read, and became U+FFFD")
    if report.cut:
        print_note(
            f"of {counted(report.cut, 'chunk')} the model read only the beginning; fewer tokens a chunk "
            "(--chunk-tokens) would keep what it leaves out"
        )
    if report.outdated:
        was = "was" if report.outdated == 1 else "were"
        print_note(
            f"{counted(report.outdated, 'document')} {was} cut by an older version; a preview of cutting them again: "
            "semlex rechunk --dry-run"
        )
    if report.enrichment is not None and report.enrichment.estimate is None:
        print_lines(report.enrichment)
    elif report.lines_kept:
        chunks, keep = counted(report.lines_kept, "chunk"), "keeps" if report.lines_kept == 1 else "keep"
        print_note(f"{chunks} {keep} the line that a language model wrote; what is new has none: semlex enrich")
    for warning in report.warnings:
        print_note(one_line(warning))
    print_problems(report)


def print_problems(report: IndexReport) -> None:
    """Prints which files could not be read, and which have no text, on stderr."""
    for title, problems in (("not read", report.problems), ("not found by any search", report.without_text)):
        for problem in problems[:SHOWN_PROBLEMS]:
            messages.print(
                f"[yellow]{title}:[/yellow] {escape(one_line(problem.uri))}: {escape(one_line(problem.message))}"
            )
        if len(problems) > SHOWN_PROBLEMS:
            messages.print(f"… and {len(problems) - SHOWN_PROBLEMS} more (--json lists all)")
