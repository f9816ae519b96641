"""Commits whose answer does not arrive: the program repeats what it has done already."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from semlex.store.postgres.database import Database


async def nothing() -> None:
    """Happens meanwhile."""


def lose_answers(
    monkeypatch: pytest.MonkeyPatch, *wanted: str, meanwhile: Callable[[], Awaitable[object]] = nothing
) -> set[str]:
    """Loses the answer to the first commit of each of these works, or of every work; returns those that lost one.

    `meanwhile` happens between the commit and its repetition.
    """
    run, lost = Database._run, set[str]()

    async def losing(self: Database, doing: str, transaction: Callable[[Any], Any], **options: Any) -> Any:
        async def unheard(connection: Any) -> Any:
            result = await transaction(connection)
            if doing not in lost and (doing in wanted or not wanted):
                lost.add(doing)
                await meanwhile()
                raise psycopg.OperationalError("the connection was lost")
            return result

        return await run(self, doing, unheard, **options)

    monkeypatch.setattr(Database, "_run", losing)
    return lost
