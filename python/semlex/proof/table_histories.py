"""A followed table changes in every way while two processes keep a collection in step, one of which is killed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg.pq import TransactionStatus

from semlex.proof.children import Child, until
from semlex.proof.followed_tables import ROWS, Following
from semlex.proof.kills import run
from semlex.proof.scenarios import Tries
from semlex.store.proving.ground import backends, connected

if TYPE_CHECKING:
    from semlex.proof.kills import Acknowledge
    from semlex.retriever.synchronous import SyncClient, SyncCollection
    from semlex.store.proving.ground import Connection

ROUNDS = 3
ACTS = ("put", "put", "delete", "move", "truncate", "begin", "begin", "end", "end", "end")


class TableHistories(Following):
    """Two sessions write a table, one in long transactions, during syncs; then a sync runs undisturbed."""

    name = "table"
    group = ""
    what = (
        "rows added, changed, deleted, moved to other keys and truncated, in transactions that are committed late or "
        "rolled back, while two processes keep a collection in step, one of which is killed"
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
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client, arguments
        collection.tables.sync(allow_empty=True)
        acknowledge()

    def _round(self, writer: Connection, late: Connection) -> int:
        application = self.site.application(self.name)
        order = self.order(application, None)
        other = replace(order, moment=0, seconds=None)
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
