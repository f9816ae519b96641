"""BM25 extensions of the server: check whether an extension can be used here, and say what to do if not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from semlex.errors import UnsupportedServerError
from semlex.store.keyword.base import MAX_TERMS, terms_cut
from semlex.store.postgres.rows import only_row
from semlex.store.query.leg import PlainKeywordLeg

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.snapshot import Snapshot

# Name of the extension -> the oldest version whose SQL is the one that is used here.
OLDEST = {"pg_textsearch": (0, 6, 1), "pg_search": (0, 21, 0)}
# Extensions that work only when the server loads their library at its start -> a setting that exists once it has.
PRELOADED = {"pg_textsearch": "pg_textsearch.library_version"}


@dataclass(frozen=True, slots=True)
class Extension:
    """Whether an extension is installed in the database, in which version, and whether the server loaded it."""

    name: str
    available: str | None = None  # version of the package on the server
    installed: str | None = None  # version in this database
    schema: str | None = None  # of its functions and operators
    # Whether the server loaded its library at its start; True if that is not needed.
    loaded: bool = True

    @property
    def problem(self) -> str | None:
        """The reason why the extension cannot be used here, with the remedy; None if it can."""
        preload = f"add {self.name} to shared_preload_libraries and restart the server"
        if self.installed is None:
            steps = [] if self.available is not None else ["install its package on the server"]
            steps += [] if self.loaded else [preload]
            remedy = "; ".join([*steps, f"run: CREATE EXTENSION {self.name};"])
            return f"the extension {self.name} is not installed in this database: {remedy}"
        if not self.loaded:
            return f"the library of the extension {self.name} is not loaded: {preload}"
        if version_numbers(self.installed) < OLDEST[self.name]:
            oldest = ".".join(map(str, OLDEST[self.name]))
            return (
                f"the extension {self.name} {oldest} or newer is needed; this database has {self.installed}. "
                f"Update the package on the server, then: ALTER EXTENSION {self.name} UPDATE;"
            )
        return None


@dataclass(frozen=True, slots=True)
class RefusingLeg(PlainKeywordLeg):
    """A keyword search that always fails, because an extension cannot be used; vector search still answers."""

    problem: str  # `Extension.problem`
    statements: tuple[()] = ()

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> NoReturn:
        """Raise the error that says why the extension cannot be used."""
        del snapshot, rows
        raise UnsupportedServerError(self.problem)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version as a tuple, for comparing."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


async def read_extension(connection: Connection, name: str) -> Extension | None:
    """Read the state of the extension of the engine `name`; return None if that engine needs no extension."""
    if name not in OLDEST:
        return None
    found = await only_row(
        connection,
        "SELECT a.default_version, e.extversion, n.nspname, "
        "%(setting)s::text IS NULL OR current_setting(%(setting)s::text, true) IS NOT NULL "
        "FROM (SELECT 1) AS one LEFT JOIN pg_available_extensions AS a ON a.name = %(name)s "
        "LEFT JOIN pg_extension AS e ON e.extname = %(name)s LEFT JOIN pg_namespace AS n ON n.oid = e.extnamespace",
        {"name": name, "setting": PRELOADED.get(name)},
    )
    return Extension(name, *found)


def first_words(query: str) -> tuple[str, tuple[str, ...]]:
    """Return the part of the query that is searched, and a warning if something was cut off."""
    words = list(re.finditer(r"\w+", query))
    if len(words) <= MAX_TERMS:
        return query, ()
    return query[: words[MAX_TERMS - 1].end()], terms_cut(len(words))
