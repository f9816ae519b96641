"""The statement that reads the ids of the chunks that pass a filter, with the state of the database at that moment."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.query.leg import Statement

if TYPE_CHECKING:
    from semlex.store.query.filters import Filter
    from semlex.store.schema.names import Names


# Equal as long as no transaction can come again. A crash may lose some, whose numbers others get then: the server's
# start stays the same, and its statistics begin again.
SERVER_RUN = sql.SQL(
    "pg_catalog.pg_postmaster_start_time()::text || ' ' || pg_catalog.pg_stat_get_bgwriter_stat_reset_time()::text"
)


@lru_cache(maxsize=256)
def database_state(names: Names, version: int | None = None) -> sql.Composed:
    """Return SQL of a text that is equal for snapshots that see the same rows, or NULL if that cannot be known."""
    # `version` is the embedding version whose vectors are read, too.
    # On a standby snapshots do not name the transactions that run. Policies may hide rows depending on the role and on
    # settings, and a transaction sees what it has written itself.
    tables = [names.chunk, names.document, names.source, *([] if version is None else [names.embedding(version)])]
    hidden = sql.SQL(" OR ").join(
        sql.SQL("pg_catalog.row_security_active({})").format(sql.Literal(table.as_string())) for table in tables
    )
    return sql.SQL(
        "CASE WHEN pg_catalog.pg_is_in_recovery() OR pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL "
        "OR {hidden} THEN NULL::text ELSE pg_catalog.pg_current_snapshot()::text || ' ' || {run} END"
    ).format(hidden=hidden, run=SERVER_RUN)


def ids_that_pass(names: Names, condition: Filter, limit: int) -> sql.Composed:
    """Return SQL of an array, as bytes, of the ids of chunks that pass: up to one more than `limit`."""
    return sql.SQL(
        "(SELECT array_send(array_agg(k.keyword_id)) FROM (SELECT c.keyword_id FROM {} AS c WHERE {} LIMIT {}) AS k)"
    ).format(names.chunk, condition.expression, sql.Literal(limit + 1))


def passing_ids(names: Names, condition: Filter, limit: int, *, state: sql.Composable, known: str | None) -> Statement:
    """Return the statement that reads the database's state and, unless it is `known`, the ids of chunks that pass."""
    text = sql.SQL(
        "SELECT s.state, CASE WHEN s.state = %(known_state)s::text THEN NULL ELSE {ids} END "
        "FROM (SELECT {state} AS state) AS s"
    ).format(
        ids=ids_that_pass(names, condition, limit),
        # Rows of other tables may be hidden by rules of their own.
        state=sql.SQL("NULL::text") if condition.names_rows else state,
    )
    return Statement(text, {**condition.parameters, "known_state": known})
