"""What a proof asks of a primary and its standby."""

from __future__ import annotations

from typing import Any

import psycopg

Connection = psycopg.Connection[Any]
PROMOTE_SECONDS = 120


def waits_for_standby(connection: Connection) -> bool:
    """Return whether commits wait for a standby, so that it has whatever was acknowledged."""
    rows = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
    return ("sync",) in rows


def promote(connection: Connection) -> bool:
    """Make a standby a primary; return whether it is one."""
    return connection.execute("SELECT pg_promote(true, %s)", [PROMOTE_SECONDS]).fetchone() == (True,)
