"""``semlex follow``: a collection follows tables and is kept in step with their rows."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, NEW, SERVER, Context, with_context
from semlex.cli.options import Flags, followed_names
from semlex.cli.output import print_note, print_table
from semlex.cli.terminal import counted, inform, messages, one_line, output
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.types.followed import FollowedStatus, FollowedTable

# Several names of columns in one argument; anything else is one expression.
_NAMES = re.compile(r"\s*\w+\s*(,\s*\w+\s*)+", re.ASCII)
SHOWN_PROBLEMS = 3


@with_context("collection", ..., *SERVER, *MODEL, *NEW)
def follow(
    context: Context,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE|NAME",
            help="Table or view to follow, such as articles or public.articles; with --change or --stop: its name "
            "in the collection.",
            autocompletion=followed_names,
        ),
    ] = None,
    *,
    options: Annotated[dict[str, Any], Flags("options.indexing:TableOptions")],
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="TEXT=FORMAT", help="Format of a text, such as body=markdown. Repeatable."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(show_default="the table's", help="Name of the followed table in the collection.")
    ] = None,
    renamed: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="With --change: the new name of a renamed table.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the followed tables, and how up to date each is.")] = False,
    change: Annotated[
        bool, typer.Option("--change", help="Change the definition; options that are not given keep their values.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop following, and delete the documents of its rows.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="With --stop: keep the documents.")] = False,
    print_sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL that makes the triggers; run and store nothing.")
    ] = False,
) -> None:
    """Follow a table of your database: its rows are searched, and a sync or a worker keeps them in step.

    Nothing is read yet: `semlex sync` reads the rows now, `semlex worker` keeps them in step. Only
    --changes trigger needs more rights on the table than SELECT.
    """
    modes = {"--list": show, "--change": change, "--stop": stop, "--sql": print_sql}
    mode = _mode(modes, table, {"--keep": ("--stop", keep), "--table": ("--change", renamed is not None)})
    given = _texts(options) | ({} if formats is None else {"formats": _formats(formats)})
    named: dict[str, Any] = {} if name is None else {"name": name}
    refused = {"--list": given | named, "--stop": given | named, "--change": named}.get(mode or "", {})
    if refused:
        raise ConfigurationError(f"{mode} does not accept --{next(iter(refused)).replace('_', '-')}: leave it out")
    wanted, follows = str(table), mode is None
    settings = context.settings() if follows else context.settings(embedding_model="none")
    if follows or print_sql:
        settings = context.with_only_collection(settings)
    with context.opened(settings, create=follows, with_choice=follows) as retriever:
        if show:
            found = retriever.tables.followed()
            context.emit(found, lambda: _print_all(found, header=context.header))
        elif print_sql:
            script = retriever.tables.ddl(wanted, **given, **named)
            context.emit({"sql": script}, lambda: output.print(script, markup=False, end=""))
        elif stop:
            deleted = retriever.tables.stop(wanted, keep=keep)
            done = "its documents stay" if keep else f"{counted(deleted, 'document')} deleted"
            line = escape(one_line(f"{wanted} is not followed any more; {done}"))
            context.emit({"name": wanted, "deleted": deleted}, lambda: inform(line))
        else:
            followed = (
                retriever.tables.change(wanted, table=renamed, **given)
                if change
                else retriever.tables.follow(wanted, **given, **named)
            )
            context.emit(asdict(followed), lambda: _print_followed(followed, changed=change))


def _mode(modes: Mapping[str, bool], table: str | None, parts: Mapping[str, tuple[str, bool]]) -> str | None:
    """Return the option that names the action; None if a table is to be followed."""
    # `parts` maps an option of an action to that action and to whether the option is given.
    chosen = [mode for mode, is_given in modes.items() if is_given]
    if len(chosen) > 1:
        raise ConfigurationError(f"{' and '.join(chosen)} exclude each other: give one of them")
    for option, (mode, is_given) in parts.items():
        if is_given and chosen != [mode]:
            raise ConfigurationError(f"{option} needs {mode}: add it, or leave {option} out")
    if (table is None) != (chosen == ["--list"]):
        raise ConfigurationError("name a table to follow, or give --list alone")
    return chosen[0] if chosen else None


def _texts(options: dict[str, Any]) -> dict[str, Any]:
    """Read `text` as columns (``title,body``) or as one expression; an empty option means None."""
    options = {name: None if value == "" else value for name, value in options.items()}
    if "text" not in options:
        return options
    parts = (text.split(",") if _NAMES.fullmatch(text) else [text] for text in options["text"])
    return options | {"text": [part.strip() for listed in parts for part in listed]}


def _formats(given: Sequence[str]) -> dict[str, str]:
    formats = {}
    for one in given:
        text, equals, name = one.rpartition("=")
        if not equals:
            raise ConfigurationError(f"--format must be TEXT=FORMAT, such as body=markdown; got {one!a}")
        formats[text.strip()] = name.strip()
    return formats


def _print_followed(table: FollowedTable, *, changed: bool) -> None:
    way = f"column {table.updated_at}" if table.changes == "column" else table.changes
    done, text, key = "changed" if changed else "followed", ", ".join(table.text), ", ".join(table.key)
    line = f"{table.name}: {table.schema}.{table.table} {done}; key {key}; text {text}; changes by {way}"
    inform(escape(one_line(line)))
    inform("semlex sync reads its rows now, semlex worker keeps them in step")


def _print_all(found: Sequence[FollowedStatus], *, header: bool) -> None:
    if not found:
        messages.print("no table is followed: semlex follow TABLE --text COLUMN follows one")
        return
    titles = ("name", "table", "rows", "waiting", "failed", "changes", "in step at (UTC)")
    rows = [
        (
            one_line(one.table.name),
            one_line(f"{one.table.schema}.{one.table.table}"),
            f"{one.rows:,}",
            f"{one.waiting:,}",
            f"{one.failed:,}",
            one.table.changes,
            "not yet" if one.synced_at is None else f"{one.synced_at:%Y-%m-%d %H:%M}",
        )
        for one in found
    ]
    print_table(titles, rows, {"rows", "waiting", "failed"}, header=header)
    for one in found:
        _print_troubles(one)


def _print_troubles(status: FollowedStatus) -> None:
    """Print to stderr why the last sync failed and which rows could not be stored."""
    name = status.table.name
    if status.error is not None:
        print_note(f"{name}: {status.error}")
    for problem in status.problems[:SHOWN_PROBLEMS]:
        again = "" if problem.due_at is None else f"; next try at {problem.due_at:%Y-%m-%d %H:%M} UTC"
        print_note(f"{name}/{problem.key} is not stored: {problem.message} ({problem.code}){again}")
    if status.failed > SHOWN_PROBLEMS:
        print_note(f"{counted(status.failed, 'row')} of {name} are not stored; --json lists the first 100")
