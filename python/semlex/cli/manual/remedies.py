"""Commands in messages, with server and collection of the command at hand: what is printed can be typed as it is."""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar
from typing import TYPE_CHECKING

from semlex.cli.manual.panels import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

# Commands that use no server.
WITHOUT_SERVER = ("chunks", "config", "models", "doctor models", "serve token")
# Commands of the embedded server alone.
EMBEDDED = "postgres"
# Other commands that name no collection, or another one.
WITHOUT_COLLECTION = frozenset(
    (
        "try",
        "collections",
        "drop",
        "migrate",
        "worker",
        "eval",
        "jobs show",
        "jobs cancel",
        "jobs retry",
        "doctor server",
    )
)
_NAMES = sorted((name for name in EXAMPLES if not name.startswith(WITHOUT_SERVER)), key=len, reverse=True)
_COMMAND = re.compile(rf"\bsemlex ({'|'.join(_NAMES)})(?![\w-])")

_database: ContextVar[str] = ContextVar("database", default="")
_data_dir: ContextVar[str] = ContextVar("data_dir", default="")
_collection: ContextVar[str] = ContextVar("collection", default="")


def set_server(database_url: str | None, data_dir: Path | None, collection: str | None = None) -> None:
    """Notes which server and which collection the command line names."""
    _database.set("" if database_url is None else " --database …")
    _data_dir.set("" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}")
    _collection.set("" if collection is None else f" --collection {shlex.quote(collection)}")


def with_server(text: str) -> str:
    """A message whose commands name the server and the collection that this command line has named."""
    if not (_database.get() or _data_dir.get() or _collection.get()):
        return text

    def named(found: re.Match[str]) -> str:
        line = text[found.end() :].partition("\n")[0]
        embedded = found[1].startswith(EMBEDDED)
        without = embedded or found[1] in WITHOUT_COLLECTION or "--collection" in line
        database = "" if embedded else _database.get()
        return f"{found[0]}{database}{_data_dir.get()}{'' if without else _collection.get()}"

    return _COMMAND.sub(named, text)
