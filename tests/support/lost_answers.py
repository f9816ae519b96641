"""Commits whose answer does not arrive: the program repeats what it has done already."""

import psycopg

from semlex.store.postgres.database import Database


def lose_answers(monkeypatch, *wanted, meanwhile=None):
    """Loses the answer to the first commit of each of these works, or of every work; returns those that lost one.

    `meanwhile` happens between the commit and its repetition.
    """
    run, lost = Database._run, set()

    async def losing(self, doing, transaction, **options):
        async def unheard(connection):
            result = await transaction(connection)
            if doing not in lost and (doing in wanted or not wanted):
                lost.add(doing)
                if meanwhile is not None:
                    await meanwhile()
                raise psycopg.OperationalError("the connection was lost")
            return result

        return await run(self, doing, unheard, **options)

    monkeypatch.setattr(Database, "_run", losing)
    return lost
