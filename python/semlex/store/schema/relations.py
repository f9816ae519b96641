"""Tables and indexes in the catalog of the server, where partitioned ones themselves have neither size nor rows."""

from __future__ import annotations

from psycopg import sql


def oid_of(relation: sql.Identifier) -> sql.Composed:
    """Return SQL of the oid of a table or an index; NULL if it does not exist."""
    return sql.SQL("pg_catalog.to_regclass({})").format(sql.Literal(relation.as_string()))


def stored_in(oid: sql.Composable) -> sql.Composed:
    """Return what follows a FROM: rows ``l`` of `pg_class` of what stores a table or an index, itself or partitions."""
    return sql.SQL(
        "(SELECT {0} AS oid UNION ALL SELECT h.inhrelid FROM pg_catalog.pg_inherits AS h WHERE h.inhparent = {0}) AS p "
        "JOIN pg_catalog.pg_class AS l ON l.oid = p.oid AND l.relkind IN ('r', 'i')"
    ).format(oid)
