"""Checks of the way to the server: what this role may do, settings, a pooler between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.diagnostics.check import Check
from semlex.store.query.health import READING, WRITING, grant, table_privileges, tables_of
from semlex.types.checkups import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex.diagnostics.check import Subject
    from semlex.diagnostics.tuning import Advice
    from semlex.store.postgres.connection import Pooling


async def check_privileges(subject: Subject) -> None:
    """What this role may not do."""
    connection, names = subject.connection, subject.collection.names
    # Who reads a collection has no need to know what others ask, and the log says itself when it cannot be written.
    tables = [name for name in tables_of(subject.collection) if name != f"{names.collection}_query_log"]
    found = await table_privileges(connection, names.schema, tables)
    for privileges, code, severity, what in (
        (READING, "privilege_read", "error", "cannot be searched by this role"),
        (WRITING, "privilege_write", "hint", "can be searched by this role, but not written"),
    ):
        # The version of a schema's tables is changed by migrations alone.
        asked = [one for one in found if code == "privilege_read" or one.table != "registry_version"]
        lacking = [one.table for one in asked if set(one.missing) & set(privileges)]
        missing = [name for name in privileges if any(name in one.missing for one in asked)]
        if not lacking or (code == "privilege_write" and subject.collection.server.read_only):
            continue
        subject.findings.append(
            Finding(
                code,
                "error" if severity == "error" else "hint",
                subject.where,
                f"{what}: it lacks {', '.join(missing)} on {_listed(lacking)}",
                "where it should, the owner of the tables runs",
                grant(connection, names.schema, missing, lacking),
            )
        )
        return
    owners = sorted({one.owner for one in found if not one.is_owner})
    if owners and not subject.collection.server.read_only:
        subject.find(
            "privilege_migrate",
            "hint",
            "can be written by this role, but not migrated, and no index of it built or dropped: its tables belong to "
            + ", ".join(owners),
            "after an update of semlex, that role runs",
            "semlex migrate",
        )


def _listed(tables: list[str]) -> str:
    few = 3
    more = f" and {len(tables) - few} more tables" if len(tables) > few else ""
    return ", ".join(tables[:few]) + more


def findings_of_settings(settings: list[Advice]) -> Iterator[Finding]:
    """Settings of the server that are worth changing."""
    for advice in settings:
        if advice.met is False:
            yield Finding(
                "setting",
                "hint",
                f"setting {advice.setting}",
                f"is {advice.now}; advised is {advice.advised}",
                advice.reason,
                advice.statement,
            )


def findings_of_pooling(pooling: Pooling, server: str) -> Iterator[Finding]:
    """A pooler between here and the server."""
    if pooling != "none":
        how = ", which lends each transaction another session" if pooling == "transaction" else ""
        yield Finding(
            "pooler",
            "hint",
            f"server {server}",
            f"is reached through a pooler{how}",
            "all of semlex works so, but an index that is built concurrently holds up writers: give semlex "
            "create-index --concurrently the address of the server itself",
        )


CHECKS = (Check("privileges", check_privileges),)
