"""Suggestions for mistyped commands and options, including names that other programs use, and examples."""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from semlex.cli.manual import EXAMPLES, WITHOUT_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A line of so many words, the first of which is like a command, is not a question.
SHORT = 2
# What does it here -> what people type.
_TYPED = {
    "collections list, documents list": "list ls",
    "search": "find query grep",
    "ask": "answer qa",
    "ask, shell": "chat",
    "shell": "repl",
    "documents show": "cat get show",
    "documents outline": "toc headings",
    "index": "ingest create init start",
    "documents import, index": "load",
    "documents add": "insert add upsert",
    "collections drop": "drop",
    "delete": "remove rm",
    "documents preview": "chunks",
    "sync": "update",
    "sync --watch": "watch",
    "collections dump": "export backup",
    "status": "info stats",
    "status, fields facets": "count",
    "doctor, eval checkup": "check",
    "maintain migrate": "upgrade",
    "maintain optimize": "vacuum",
    "config": "settings",
    "models fill": "embed",
    "models set": "reembed",
    "models list": "embeddings",
    "models pull": "download",
    "postgres status": "server",
}
COMMANDS = {word: meant.split(", ") for meant, words in _TYPED.items() for word in words.split()}
SERVER_OPTIONS = frozenset({"--database", "--data-dir", "--keep-alive", "--collection", "-c"})
_FLAGS = {
    "--top-k": "--limit --num --count --size -n",
    "--filter": "--where",
    "--database": "--url --db --dsn",
    "--collection": "--name --table --index",
    "--json": "--format --output",
    "--fields": "--columns",
    "--yes": "--force -y -f",
    "--deadline": "--timeout",
    "--model": "--embedding-model -m",
    "--reranker": "--rerank",
}
OPTIONS = {word: meant for meant, words in _FLAGS.items() for word in words.split()}


def for_command(typed: Sequence[str], known: Iterable[str], path: str = "semlex") -> str:
    """Return a message for a word that is not a command, with what to type instead."""
    # `path` has the words before it: `semlex`, or those of a group.
    word, names = typed[0], list(known)
    lowered = word.lower().replace("_", "-")
    told = f"No such command {word!r}."
    if path != "semlex":
        meant: Sequence[str] = get_close_matches(lowered, names, n=1)
        group = path.removeprefix("semlex ")
        return f"{told} {_did_you_mean([f'{group} {name}' for name in meant], typed)}{path} has {', '.join(names)}."
    meant = COMMANDS.get(lowered) or _below(lowered) or ((lowered,) if lowered in names else ())
    is_known = bool(meant)
    meant = meant or get_close_matches(lowered, names, n=1)
    told = f"{told} {_did_you_mean(meant, typed)}".rstrip()
    if meant and (is_known or len(typed) == SHORT):
        return told
    asked = shlex.join(typed) if len(typed) > 1 else f'"{word}"'
    return f"{told} To ask a question: semlex search {asked}"


def _below(word: str) -> list[str]:
    """Return the commands of groups that have this name."""
    return [name for name in EXAMPLES if " " in name and name.rsplit(" ", 1)[1] == word != "run"]


def _did_you_mean(meant: Sequence[str], typed: Sequence[str]) -> str:
    if not meant:
        return ""
    rest = f" {shlex.join(typed[1:])}" if typed[1:] and len(meant) == 1 else ""
    return f"Did you mean: {' or '.join(f'semlex {name}{rest}' for name in meant)}? "


def sharpen(error: Any, typed: Sequence[str]) -> None:
    """Add a suggestion or an example to an error about arguments."""
    if error.ctx is None:
        return
    name = error.ctx.command_path.removeprefix("semlex").strip()
    if hasattr(error, "possibilities"):
        if error.option_name in SERVER_OPTIONS and name.startswith(WITHOUT_SERVER):
            error.message += f": semlex {name} uses no database"
        else:
            options = {option for one in error.ctx.command.params for option in (*one.opts, *one.secondary_opts)}
            meant = _options(error.option_name, typed, options) or error.possibilities or ()
            error.message += f". Did you mean {' or '.join(meant)}?" if meant else ""
        error.possibilities = None
    elif name in EXAMPLES and (_is_missing(error) or error.message.startswith("Got unexpected extra argument")):
        error.message = f"{error.message}{'. ' if error.message else ''}Example: {EXAMPLES[name]}"


def _is_missing(error: Any) -> bool:
    return getattr(error, "param_type", ...) is not ...  # only errors of missing arguments say of which type


def _options(option: str, typed: Sequence[str], options: set[str]) -> list[str]:
    """Return the options that a word probably means; empty if none is similar."""
    # What begins with one dash is read letter by letter.
    words = [word.partition("=")[0] for word in typed if word.startswith(option)]
    for word in dict.fromkeys([option, *words]):
        for meant in (OPTIONS.get(word, ""), "--" + word.lstrip("-").lower().replace("_", "-")):
            if meant in options:
                return [meant]
    return get_close_matches(option, options, n=1, cutoff=0.7)
