"""List the numbered migrations."""

# Until the first release, a change of the schema edits the first migration; afterwards migrations are append-only.

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from semlex.errors import SchemaVersionError
from semlex.store.schema.locks import shortened
from semlex.store.schema.migrations import m0001_initial
from semlex.store.schema.names import Names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg import sql

    Migrations = Sequence[Callable[[Any], Sequence[sql.Composed]]]


# The registry (one set of tables per schema) and each collection count their versions apart, so that opening one
# collection never touches the others: one transaction over a thousand collections would exhaust the server's lock
# table. Rules for every statement: a document's key is part of every primary key and nothing else is unique; times are
# values, not now(); no triggers, no MERGE.
REGISTRY: Sequence[Callable[[str], Sequence[sql.Composed]]] = (m0001_initial.registry,)
COLLECTION: Sequence[Callable[[Names], Sequence[sql.Composed]]] = (m0001_initial.collection,)


Origin = Literal["this", "older", "newer", "unreleased"]
REMEDY = (
    "and index again. To keep the contents, first dump them with that version (semlex collections dump), then restore "
    "them with this one (semlex collections restore)"
)


def registry_fingerprint(version: int) -> str:
    """Return a hash of the statements that make the tables that all collections share."""
    return _fingerprint(tuple(REGISTRY[:version]), "s")


def collection_fingerprint(version: int | None = None) -> str:
    """Return a hash of the statements that make the tables of a collection, in this or an older version."""
    return _fingerprint(tuple(COLLECTION[:version]), Names("s", "c"))


@cache
def _fingerprint(applied: Migrations, place: str | Names) -> str:
    statements = (statement.as_string() for migration in applied for statement in migration(place))
    return hashlib.sha256("\n".join(" ".join(one.split()) for one in statements).encode()).hexdigest()[:16]


def registry_origin(version: int, fingerprint: str | None) -> Origin:
    """Return which semlex made the tables that all collections share: this, an older, newer or unreleased one."""
    return _origin(version, fingerprint, registry_fingerprint(version), len(REGISTRY))


def collection_origin(version: int, fingerprint: str | None) -> Origin:
    """Return which semlex made the tables of a collection; arguments as for `registry_origin`."""
    return _origin(version, fingerprint, collection_fingerprint(version), len(COLLECTION))


def _origin(version: int, fingerprint: str | None, own: str, newest: int) -> Origin:
    if fingerprint is not None and version > newest:
        return "newer"
    if fingerprint != own:
        return "unreleased"
    return "this" if version == newest else "older"


def check_collection(name: str, version: int, fingerprint: str | None) -> None:
    """Refuse the tables of a collection that this semlex cannot read."""
    origin = collection_origin(version, fingerprint)
    if origin == "newer":
        raise newer_tables(f"collection {name!r}", version, len(COLLECTION))
    if origin == "unreleased":
        raise SchemaVersionError(
            f"collection {name!r} was made by an unreleased semlex with other tables: drop it (semlex collections drop "
            f"{name}) " + REMEDY
        )


def newer_tables(what: str, version: int, known: int) -> SchemaVersionError:
    """Return the error for tables that a newer semlex made."""
    return SchemaVersionError(
        f"{what} has version {version}, this semlex knows up to {known}: update semlex (every program that uses this "
        "database), or drop the collection with: semlex collections drop"
    )


def unreleased_registry(schema: str, collections: Sequence[str]) -> SchemaVersionError:
    """Return the error for a schema whose shared tables an unreleased semlex made."""
    drops = shortened([f"semlex collections drop {name}" for name in collections])
    return SchemaVersionError(
        f"the collections of schema {schema!r} were made by an unreleased semlex with other tables: drop each of them "
        f"({drops}) {REMEDY}"
    )
