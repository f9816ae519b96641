"""Numbered migrations. Until the first release a change of the schema edits the first one; then they are append-only.

The registry (one set of tables per schema) and each collection count their versions apart, so that opening one
collection never touches the others: one transaction over a thousand collections would exhaust the server's lock table.
Rules for every statement: a document's key is part of every primary key and nothing else is unique; times are values,
not now(); no triggers, no MERGE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.store.schema.migrations import m0001_initial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg import sql

    from semlex.store.schema.names import Names

REGISTRY: Sequence[Callable[[str], Sequence[sql.Composed]]] = (m0001_initial.registry,)
COLLECTION: Sequence[Callable[[Names], Sequence[sql.Composed]]] = (m0001_initial.collection,)
