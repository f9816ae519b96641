"""Followed tables whose rows change during syncs, some of which are killed; in the end each row is stored once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from psycopg.pq import TransactionStatus

from semlex.proof.check import SHOWN, check_present, expect, whole_documents
from semlex.proof.children import Child, until
from semlex.proof.kills import Killed, Limits, Task, run
from semlex.proof.scenarios import Tries
from semlex.proof.texts import WordDirections, draw_text
from semlex.store.proving import Articles, Connection, backends, connected, end_table_leases

if TYPE_CHECKING:
    import random

    from semlex.retriever.synchronous import SyncCollection
    from semlex.store.schema.names import Names

ROWS = 40
WAYS: tuple[Literal["trigger", "comparison"], ...] = ("trigger", "comparison")


class FollowedArticles:
    """A table that a collection follows, and every text that its rows ever had.

    Args:
        url: The server of the table and the collection.
        names: Names of the collection's tables.
        chance: Random numbers for the changes.
    """

    def __init__(self, url: str, names: Names, chance: random.Random) -> None:
        self._url, self._names, self._chance = url, names, chance
        self.table = Articles(names.schema, f"{names.collection}_articles")
        self._ever: set[tuple[str, str]] = set()

    def follow(self, collection: SyncCollection) -> None:
        """Make the table, and let the collection follow it twice: once for each way of finding changes."""
        collection.count()  # makes the schema
        with connected(self._url) as connection:
            self.table.create(connection)
        for way in WAYS:
            collection.tables.follow(
                self.table.name, name=way, schema=self._names.schema, key=["id"], text=["body"], changes=way
            )

    def stir(self) -> None:
        """Add and change rows, and delete some."""
        with connected(self._url) as connection:
            self.table.put(connection, self.drawn(15))
            self.note(connection)
            self.table.delete(connection, self.some(connection, 4))

    def drawn(self, count: int, first: int = 0) -> dict[int, str]:
        """Draw random keys, not below `first`, with random texts."""
        return {one: draw_text(self._chance) for one in self._chance.sample(range(first, first + ROWS), count)}

    def some(self, connection: Connection, count: int) -> list[int]:
        """Draw random keys of existing rows, below `ROWS`."""
        present = sorted(one for one in self.table.rows(connection) if one < ROWS)
        return self._chance.sample(present, min(count, len(present)))

    def note(self, connection: Connection) -> dict[str, str]:
        """Return the texts of the present rows by the names of their documents, and remember them as allowed."""
        rows = {f"{way}/{one}": text for one, text in self.table.rows(connection).items() for way in WAYS}
        self._ever.update(rows.items())
        return rows

    def is_in_step(self) -> bool:
        """Return whether the collection has exactly the present rows."""
        with connected(self._url) as connection:
            return self._stored() == self.note(connection)

    def check(self, *, complete: bool) -> None:
        """Check that every document equals a text that its row had; if `complete`, the present text."""
        stored = self._stored()
        other = [name for name, text in stored.items() if (name, text) not in self._ever]
        expect(not other, "wrong", f"texts that their rows never had: {other[:SHOWN]}")
        if complete:
            with connected(self._url) as connection:
                check_present(stored, self.note(connection), "row")

    def _stored(self) -> dict[str, str]:
        found = whole_documents(self._url, self._names, WordDirections()) or []
        return {name: text for name, _, text in found}


class Following(Killed):
    """Kill a process that syncs a collection with a table whose rows were added, changed and deleted."""

    name = "kill-follow"
    what = "a collection brought in step with a table whose rows were added, changed and deleted"

    def begin(self) -> None:
        super().begin()
        self.articles = FollowedArticles(self.site.url, self.names, self.chance)
        self.articles.follow(self.collection)

    def limits(self) -> Limits:
        return {
            "semlex.ingest.followed.run": {"BATCH_ROWS": 5, "METADATA_ROWS": 5},
            "semlex.ingest.followed.changed_rows": {"KEYS_AT_ONCE": 7},
        }

    def draw(self) -> None:
        self.articles.stir()

    @staticmethod
    def do(task: Task) -> None:
        task.collection.tables.sync()
        task.acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged, arguments
        self.articles.check(complete=False)

    def finish(self, arguments: Any) -> None:
        with connected(self.site.url) as connection:
            end_table_leases(connection, self.names)
        super().finish(arguments)

    def check(self) -> None:
        self.articles.check(complete=True)


ROUNDS = 3
ACTS = ("put", "put", "delete", "move", "truncate", "begin", "begin", "end", "end", "end")


class TableHistories(Following):
    """Two sessions, one with long transactions, write a table during syncs; then a sync runs undisturbed."""

    name = "table"
    group = ""
    what = (
        "rows added, changed, deleted, moved to other keys and truncated, in transactions that commit late or roll "
        "back, while two processes keep a collection in step; one of them is killed"
    )
    weight = 1.0

    def attempt(self) -> Tries:
        kills = 0
        with connected(self.site.url) as writer, connected(self.site.url) as late:
            late.autocommit = False
            for _ in range(ROUNDS):
                kills += self._round(writer, late)
            late.rollback()
        self.draw()
        self.finish(None)
        self.site.sabotage(self.names)
        self.check()
        return Tries(ROUNDS, kills)

    @staticmethod
    def do(task: Task) -> None:
        task.collection.tables.sync(allow_empty=True)
        task.acknowledge()

    def _round(self, writer: Connection, late: Connection) -> int:
        application = self.site.application(self.name)
        order = self.order(application, None)
        other = self.order(application, None, is_killed=False)
        self.draw()
        with Child(run, order) as killed, Child(run, other) as living:
            until(lambda: backends(writer, application) or not living.is_running, "the first connection of a process")
            for act in self.chance.choices(ACTS, k=len(ACTS)):
                self._act(act, writer, late)
                self.articles.check(complete=False)
            self.is_killed(living, other)
            is_killed = self.is_killed(killed, order)
        self.wait_for_backends(application)
        return int(is_killed)

    def _act(self, act: str, writer: Connection, late: Connection) -> None:
        articles, table, chance = self.articles, self.articles.table, self.chance
        is_open = late.info.transaction_status != TransactionStatus.IDLE
        if act == "begin" and not is_open:
            # Keys that nobody else changes, who would wait.
            table.put(late, articles.drawn(5, ROWS))
            table.delete(late, chance.sample(range(ROWS, 2 * ROWS), 5))
        elif act == "end" and is_open:
            chance.choice((late.commit, late.commit, late.rollback))()
        elif act == "truncate" and not is_open:  # it would wait for the other session
            table.truncate(writer)
        elif act == "put":
            table.put(writer, articles.drawn(8))
        elif act in ("delete", "move"):
            own = articles.some(writer, 8)
            if act == "delete":
                table.delete(writer, own)
            else:
                table.move(writer, dict(zip(own, chance.sample(range(ROWS), len(own)), strict=True)))
        articles.note(writer)
