"""Read versions and settings of the server and the memory of this machine; refuse servers that are too old."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.errors import UnsupportedServerError
from semlex.store.postgres.rows import fetch_rows, fetch_value, only_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.postgres.connection import Connection


logger = logging.getLogger("semlex")

MINIMUM_POSTGRES = 15
MINIMUM_PGVECTOR = (0, 8, 0)  # the first with iterative scans, without which a filtered search returns too few rows
SAFE_PGVECTOR = (0, 8, 4)  # below: parallel HNSW builds overflow (0.8.2), vacuum damages graphs (0.8.3, 0.8.4)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server's version, pgvector's version and schema, and whether it accepts writes."""

    postgres: int  # major version
    pgvector: tuple[int, ...] | None  # None if it is not installed in this database
    extension_schema: str | None  # of pgvector's types and operators
    read_only: bool  # a standby, or transactions are read-only by default

    @property
    def extension(self) -> sql.Identifier:
        """The schema of pgvector, to qualify its types and operators."""
        if self.extension_schema is None:
            raise UnsupportedServerError(
                "the extension pgvector is not installed in this database; run: CREATE EXTENSION vector;"
            )
        return sql.Identifier(self.extension_schema)

    @property
    def parallel_index_builds(self) -> bool:
        """Whether this pgvector builds HNSW indexes safely with parallel workers."""
        return self.pgvector is not None and self.pgvector >= SAFE_PGVECTOR


async def read_server_info(connection: Connection) -> ServerInfo:
    """Read the versions of the server and of pgvector, and whether the server accepts writes; refuse old versions."""
    postgres, version, schema, read_only = await only_row(
        connection,
        "SELECT current_setting('server_version_num')::int / 10000, e.extversion, n.nspname, "
        "pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool "
        "FROM (SELECT 1) AS one LEFT JOIN pg_extension AS e ON e.extname = 'vector' "
        "LEFT JOIN pg_namespace AS n ON n.oid = e.extnamespace",
    )
    pgvector = tuple(int(part) for part in re.findall(r"\d+", version)[:3]) if version else None
    if postgres < MINIMUM_POSTGRES:
        raise UnsupportedServerError(
            f"Postgres {MINIMUM_POSTGRES} or newer is needed; this server has version {postgres}"
        )
    if pgvector is not None and pgvector < MINIMUM_PGVECTOR:
        raise UnsupportedServerError(
            f"pgvector 0.8.0 or newer is needed; this database has {version}. "
            "Update the package on the server, then: ALTER EXTENSION vector UPDATE;"
        )
    if pgvector is not None and pgvector < SAFE_PGVECTOR:
        logger.warning("pgvector %s has known index defects; update it to 0.8.4 or newer", version)
    return ServerInfo(postgres, pgvector, schema, read_only)


async def is_standby(connection: Connection) -> bool:
    """Return whether the server is a standby, which replays the writes of a primary."""
    return bool(await fetch_value(connection, "SELECT pg_catalog.pg_is_in_recovery()"))


@dataclass(frozen=True, slots=True)
class ServerSetting:
    """A setting of the server, with its value as text and as a number."""

    name: str
    text: str  # as the server writes it, for example ``128MB``
    number: float  # in bytes for a size; 0 if it is not a number
    needs_restart: bool  # whether a change takes effect only when the server starts


async def read_server_settings(connection: Connection, names: Sequence[str]) -> dict[str, ServerSetting]:
    """Return the server's settings by name, without those that this server does not know."""
    # semlex's transactions change settings; `reset_val` is the session's first value.
    found = await fetch_rows(
        connection,
        "SELECT name, CASE vartype WHEN 'bool' THEN reset_val ELSE current_setting(name) END, "
        "CASE WHEN vartype = 'bool' OR vartype = 'string' OR vartype = 'enum' "
        "THEN 0 ELSE reset_val::float8 * CASE unit WHEN 'B' THEN 1 WHEN 'kB' THEN 1024 WHEN '8kB' THEN 8192 "
        "WHEN 'MB' THEN 1048576 WHEN '16MB' THEN 16777216 ELSE 1 END END, context = 'postmaster' "
        "FROM pg_settings WHERE name = ANY(%s)",
        [list(names)],
    )
    return {row[0]: ServerSetting(*row) for row in found}


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container's limit if lower; 0 if that is not known."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0
    try:
        return min(found, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such group, or no limit
        return found
