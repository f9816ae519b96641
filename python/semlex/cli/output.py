"""Results and reports as text, as JSON with one object per line, or as the file of an HTML page."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from semlex.cli.terminal import UNSAFE, inform, is_verbose, marked_text, messages, one_line, output
from semlex.errors import ConfigurationError
from semlex.types.confidence import SUPPORT_TEXT
from semlex.types.display import HEADING_SEPARATOR, shortened
from semlex.types.documents import json_value, located

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from semlex.types.results import SearchResult, SearchResults

SHOWN_NAMES = 12
_MISSING = object()


def json_text(value: object) -> str:
    """Return a value as JSON on one line, with control characters escaped."""
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, (datetime, date)) else str(value)


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path such as ``legs.vector`` or ``heading_path.0``; for a list of objects, a list."""
    if not path:
        return value
    first, _, rest = path.partition(".")
    if isinstance(value, dict):
        if path in value:
            return value[path]
        return value_at(value[first], rest) if first in value else _MISSING
    if isinstance(value, (list, tuple)):
        if first.isdigit():
            return value_at(value[int(first)], rest) if int(first) < len(value) else None
        found = [one for one in (value_at(entry, path) for entry in value) if one is not _MISSING]
        return found if found or not value else _MISSING
    return _MISSING


def cell(value: object) -> str:
    """Return a value as a table cell: text on one line, "" for None, JSON for lists and objects."""
    if value is None or value is _MISSING:
        return ""
    return one_line(value) if isinstance(value, str) else json_text(value)


@dataclass(slots=True)
class Columns:
    """The keys that ``--fields`` chooses, and which of them the objects had."""

    names: tuple[str, ...]  # with dots for keys inside objects
    as_json: bool  # whether objects are printed instead of tab-separated values
    header: bool  # whether a first line with the names is printed
    _shown: int = 0
    _has_rows: bool = False
    _keys: dict[str, None] = field(default_factory=dict)
    _met: set[str] = field(default_factory=set)

    # An object is printed if it has all of these keys, so that hits and their summary are not mixed.
    def lines(self, value: dict[str, Any]) -> Iterator[str]:
        """Yield the lines to print for an object."""
        self._keys |= dict.fromkeys(value)
        # A summary is printed even if nothing was found.
        self._has_rows |= value.get("type") != "summary"
        if any(name not in value and name.partition(".")[0] not in value for name in self.names):
            for warning in value.get("warnings") or ():
                messages.print(f"note: {one_line(str(warning))}", markup=False)
            if value.get("next_cursor"):
                inform(f"next page: semlex search --after {value['next_cursor']}")
            return
        found = {name: value_at(value, name) for name in self.names}
        self._met |= {name for name, one in found.items() if one is not _MISSING}
        self._nested(value)
        if self.as_json:
            yield json_text({name: None if one is _MISSING else one for name, one in found.items()})
        else:
            yield from self._header()
            yield "\t".join(map(cell, found.values()))
        self._shown += 1

    def _header(self) -> Iterator[str]:
        if self.header and not self.as_json and not self._shown:
            yield "\t".join(self.names)

    def _nested(self, value: dict[str, Any]) -> None:
        for name in self.names:
            parent, dot, _ = name.rpartition(".")
            inside = value_at(value, parent) if dot else None
            if isinstance(inside, dict):
                self._keys |= dict.fromkeys(f"{parent}.{key}" for key in inside)

    def end(self) -> Iterator[str]:
        """Yield the lines to print at the end; report keys that no object had."""
        if self._has_rows and not self._shown:
            unknown = [name for name in self.names if name.partition(".")[0] not in self._keys]
            raise ConfigurationError(
                self._unknown(unknown)
                if unknown
                else f"--fields: no line of --json has all of {', '.join(self.names)}: choose keys that occur together"
            )
        if self._shown and (never := [name for name in self.names if name not in self._met]):
            messages.print(f"note: {self._unknown(never)}", markup=False)
        yield from self._header()

    def _unknown(self, names: list[str]) -> str:
        told = []
        for name in names:
            near = get_close_matches(name, self._keys, n=3)
            told.append(f"no line has the field {name!a}" + (f": did you mean {', '.join(near)}?" if near else ""))
        keys = list(self._keys)
        rest = f", and {len(keys) - SHOWN_NAMES:,} more (--json shows all)" if len(keys) > SHOWN_NAMES else ""
        return one_line(f"--fields: {'; '.join(told)}; fields: {', '.join(keys[:SHOWN_NAMES])}{rest}")


_chosen: ContextVar[Columns | None] = ContextVar("columns", default=None)


def chosen_columns() -> Columns | None:
    """Return the columns that ``--fields`` chose; None if it was not given."""
    return _chosen.get()


@contextmanager
def choosing(names: str | None, *, as_json: bool, header: bool) -> Iterator[Columns | None]:
    """Make `chosen_columns` return these columns inside the block."""
    if names is None:
        yield None
        return
    listed = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not listed:
        raise ConfigurationError("--fields names no key: give keys of --json with commas, such as id,source_document")
    columns = Columns(listed, as_json, header)
    token = _chosen.set(columns)
    try:
        yield columns
    finally:
        _chosen.reset(token)


EXCERPT_LINES = 12
# Characters that a heading has at least, however long its file's name is.
MIN_HEADING = 20
INDENT = 3
# Characters of a column that is shown with a hit.
MAX_CELL = 60


def print_json(value: dict[str, Any]) -> None:
    """Print one object as JSON on one line, or the columns that ``--fields`` chose."""
    columns = chosen_columns()
    write_lines([json_text(value)] if columns is None else columns.lines(value))


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout unchanged, for programs."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def summary_object(results: SearchResults) -> dict[str, Any]:
    """Return the summary of results as a JSON object: how the hits were found, and how many."""
    found = results.to_dict()
    del found["documents"]
    return found | {"type": "summary", "hits": len(results)}


def print_many(questions: Sequence[str], answers: Sequence[SearchResults], *, as_json: bool) -> None:
    """Print the hits of many questions; as JSON, each line has its question and its number in ``query``, from 1."""
    for number, (question, results) in enumerate(zip(questions, answers, strict=True), start=1):
        if as_json:
            _print_objects(results, {"query": number, "question": question})
        else:
            output.print(f"[bold underline]{escape(one_line(question))}[/bold underline]")
            print_results(results, as_json=False)


def _print_objects(results: SearchResults, beside: dict[str, Any]) -> None:
    documents = {id(hit): {"document": document.rank} for document in results.documents for hit in document.hits}
    for result in results:
        print_json(beside | documents.get(id(result), {}) | result.to_dict())
    print_json(beside | summary_object(results))


def print_results(results: SearchResults, *, as_json: bool) -> None:
    """Print hits, best first; with ``--verbose`` or ``--explain`` also their scores and how they were found."""
    if as_json:
        _print_objects(results, {})
        return
    with_details = is_verbose() or results.explanation is not None
    names = {id(document.hits[0]): document for document in results.documents}
    for result in results:
        if (document := names.get(id(result))) is not None:
            output.print(f"[bold underline]{escape(one_line(document.source_document or result.id))}[/bold underline]")
        _print_hit(result, with_scores=with_details)
    if not results:
        output.print("nothing found")
    print_note(*results.warnings)
    if results:
        inform(f"[bold]{SUPPORT_TEXT[results.support]}[/bold]")
    if with_details:
        _print_search(results)
    _print_ways_on(results)


def _print_hit(result: SearchResult, *, with_scores: bool) -> None:
    """Print file, place and headings of a hit on one line, and its excerpt below."""
    location = f"{result.rank}. {one_line(location_of(result))}"
    heading = HEADING_SEPARATOR.join(result.heading_path)
    if output.is_terminal:
        heading = shortened(heading, max(MIN_HEADING, output.width - len(location) - 2))
    shown = f"  [cyan]{escape(one_line(heading))}[/cyan]" if heading else ""
    output.print(f"[bold]{escape(location)}[/bold]{shown}")
    if with_scores:
        output.print(f"   {_scores(result)}", style="dim")
    if result.columns:
        values = {name: cell(json_value(value)) for name, value in result.columns.items()}
        output.print(
            escape("   " + " · ".join(f"{name}: {shortened(text, MAX_CELL)}" for name, text in values.items()))
        )
    _print_excerpt(result)


def print_statement(statement: str, results: SearchResults) -> None:
    """Print an SQL statement that contains hits; notes about the hits go to stderr."""
    write_lines([statement])
    print_note(*results.warnings)
    if is_verbose():
        _print_search(results)
    _print_ways_on(results)


def _print_search(results: SearchResults) -> None:
    """Print how the hits were found."""
    if figures := best_match(results):
        inform(f"[dim]{figures}[/dim]")
    for leg in results.legs.values():
        if leg.share is not None:
            inform(f"[dim]{leg}[/dim]")
    model = f" · {results.embedding_model}" if results.embedding_model else ""
    fusion = f" · fused by {results.fusion}" if results.fusion else ""
    rerank = f" · reranked by {results.reranker_model}" if results.reranker_model else ""
    inform(f"[dim]{results.mode} search{escape(model)}{fusion}{escape(rerank)} · {timings_line(results.timings)}[/dim]")


def timings_line(timings: Mapping[str, float]) -> str:
    """Return the milliseconds of each stage on one line."""
    return ", ".join(f"{name} {milliseconds:.1f} ms" for name, milliseconds in timings.items())


def _print_ways_on(results: SearchResults) -> None:
    """Print the search's route and the command for the next page, if it has them."""
    print_route(results)
    if results.next_cursor is not None:
        inform(f"[dim]next page: semlex search --after {results.next_cursor}[/dim]")


def print_timings(results: SearchResults) -> None:
    """Print the milliseconds of each stage as a table to stderr; nested stages overlap."""
    width = max((len(name) for name in results.timings), default=0)
    for name, milliseconds in results.timings.items():
        messages.print(f"{name:<{width}}  {milliseconds:9.1f} ms")


def location_of(result: SearchResult) -> str:
    """Return path and place of a hit's file (a relative path if below the working directory), or a hit's id."""
    location = result.source_document or result.id
    if result.root:
        path = Path(result.root) / location
        location = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    return located(location, result.place)


def best_match(results: SearchResults) -> str:
    """Return the best similarity and coverage of the hits in words; "" if neither is known."""
    similarity, coverage = results.best_similarity, results.coverage
    parts = [] if similarity is None else [f"best similarity {number(similarity, 2)}"]
    if coverage is not None:
        share = f"{coverage:.0%}".replace("%", " %")
        parts.append(f"a hit contains up to {share} of the query's words, weighted by rarity")
    return "; ".join(parts)


def number(value: float, digits: int) -> str:
    """Format a number with a fixed number of digits, without a negative zero."""
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
        sign = "times" if result.fused_score >= 0 else "divided by"
        if result.boost is not None:
            sum_of = f" = ({sum_of[3:]}) {sign} {result.boost:g}" if sum_of else f" (boost {result.boost:g})"
        if result.heading_factor is not None:
            sum_of += f" ({sign} {result.heading_factor:g}: its heading is the query)"
        parts.append(f"fused {number(result.fused_score, 5)}{sum_of}")
    if result.rerank_score is not None:
        parts.append(f"rerank {number(result.rerank_score, 3)}")
    if result.mixed_score is not None:
        parts.append(f"mixed {number(result.mixed_score, 3)}")
    if result.confidence is not None:
        parts.append(f"confidence {number(result.confidence, 2)}")
    return " · ".join(parts)


def _print_excerpt(result: SearchResult) -> None:
    """Print the non-blank lines of an excerpt, with matched words in bold on a terminal."""
    text = marked_text(result.excerpt, result.content, "bold")
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


def print_note(*texts: str) -> None:
    """Print notes to stderr, each on one line."""
    for text in texts:
        messages.print(f"[yellow]note:[/yellow] {escape(one_line(text))}")


def print_route(results: SearchResults) -> None:
    """Print the search's route to stderr, if it has one: the kind of the question, and why it was chosen."""
    if results.route is not None:
        inform(f"[dim]route: {escape(one_line(str(results.route)))}[/dim]")


def print_lines(lines: Mapping[str, object], width: int = 24) -> None:
    """Print names and their values, each pair on one line; a value of None is left out."""
    for name, value in lines.items():
        if value is not None:
            output.print(escape(one_line(f"{name:{width}} {value}")))


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str], *, header: bool
) -> None:
    """Print a table whose columns are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in [titles, *rows] if header else rows:
        cells = [
            cell.rjust(width) if title in numbers else cell.ljust(width)
            for title, cell, width in zip(titles, row, widths, strict=True)
        ]
        output.print(escape("  ".join(cells).rstrip()), style="bold" if row is titles else None)


# Shown for a collection without vectors.
KEYWORDS_ONLY = "keywords only"


def shown_count(number: int | None, *, estimated: bool = False) -> str:
    """Return a count as text, also one that is unknown or estimated."""
    if number is None:
        return "unknown"
    return f"about {number:,}" if estimated else f"{number:,}"


def check_place(path: Path, option: str) -> None:
    """Refuse the path of an output file, before any work, if it cannot be written."""
    try:
        fits = os.access(path.absolute().parent, os.W_OK | os.X_OK) and not path.is_dir()
    except OSError:
        fits = False
    if not fits:
        raise ConfigurationError(
            f"{option}: {one_line(str(path))} cannot be written: name a file in a folder that you can write to"
        )


def write_page(path: Path, page: str, option: str) -> None:
    """Write the page to a temporary file and move it into place, so that it is complete or absent."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(page, encoding="utf-8", newline="\n")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ConfigurationError(f"{option}: {one_line(str(path))} cannot be written: {error.strerror}") from None
