"""Numbered migrations, append-only: a released one is never edited.

The registry (one set of tables per schema) and each collection count their versions apart, so that opening one
collection never touches the others: one transaction over a thousand collections would exhaust the server's lock table.
Rules for every statement: a document's key is part of every primary key and nothing else is unique; times are values,
not now(); no triggers, no MERGE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.store.schema.migrations import (
    m0001_initial,
    m0002_keyword_index,
    m0003_sources_and_settings,
    m0004_pages,
    m0005_how_files_are_read,
    m0006_embedding_versions,
    m0007_jobs,
    m0008_calibration_and_query_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg import sql

    from semlex.store.schema.names import Names

REGISTRY: Sequence[Callable[[str], Sequence[sql.Composed]]] = (
    m0001_initial.registry,
    m0002_keyword_index.registry,
    m0003_sources_and_settings.registry,
    m0005_how_files_are_read.registry,
    m0006_embedding_versions.registry,
    m0007_jobs.registry,
    m0008_calibration_and_query_log.registry,
)
COLLECTION: Sequence[Callable[[Names], Sequence[sql.Composed]]] = (
    m0001_initial.collection,
    m0002_keyword_index.collection,
    m0003_sources_and_settings.collection,
    m0004_pages.collection,
    m0005_how_files_are_read.collection,
    m0006_embedding_versions.collection,
    m0008_calibration_and_query_log.collection,
)
