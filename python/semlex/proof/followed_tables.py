"""A followed table: its next run, after one that was killed, brings the collection in step, each row once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from semlex.proof.check import SHOWN, check_present, whole_documents
from semlex.proof.embedder import WordDirections
from semlex.proof.faults import expect
from semlex.proof.kills import Killed
from semlex.proof.texts import draw_text
from semlex.store.proving.articles import Articles
from semlex.store.proving.ground import connected, end_table_leases

if TYPE_CHECKING:
    import random

    from semlex.proof.kills import Acknowledge, Limits
    from semlex.retriever.synchronous import SyncClient, SyncCollection
    from semlex.store.proving.ground import Connection
    from semlex.store.schema.names import Names

ROWS = 40
WAYS: tuple[Literal["trigger", "comparison"], ...] = ("trigger", "comparison")


class FollowedArticles:
    """A table that a collection follows, and every text that a row of it ever had.

    Args:
        url: The server of both.
        names: The tables of the collection.
        chance: What decides.
    """

    def __init__(self, url: str, names: Names, chance: random.Random) -> None:
        self._url, self._names, self._chance = url, names, chance
        self.table = Articles(names.schema, f"{names.collection}_articles")
        self._ever: set[tuple[str, str]] = set()

    def follow(self, collection: SyncCollection) -> None:
        """Make the table, and let the collection follow it in both ways, under a name for each."""
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
        """Draw keys, from `first` on, with texts."""
        return {one: draw_text(self._chance) for one in self._chance.sample(range(first, first + ROWS), count)}

    def some(self, connection: Connection, count: int) -> list[int]:
        """Draw keys from the first rows of the table."""
        present = sorted(one for one in self.table.rows(connection) if one < ROWS)
        return self._chance.sample(present, min(count, len(present)))

    def note(self, connection: Connection) -> dict[str, str]:
        """Return the texts of the present rows by the names of their documents, and remember them."""
        rows = {f"{way}/{one}": text for one, text in self.table.rows(connection).items() for way in WAYS}
        self._ever.update(rows.items())
        return rows

    def is_in_step(self) -> bool:
        """Return whether the collection has exactly the present rows."""
        with connected(self._url) as connection:
            return self._stored() == self.note(connection)

    def check(self, *, complete: bool) -> None:
        """Check that every document is one text that its row had, whole; if `complete`, that it is the present one."""
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
    """A collection brought in step with a table whose rows were added, changed and deleted."""

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
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client, arguments
        collection.tables.sync()
        acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged, arguments
        self.articles.check(complete=False)

    def finish(self, arguments: Any) -> None:
        with connected(self.site.url) as connection:
            end_table_leases(connection, self.names)
        super().finish(arguments)

    def check(self) -> None:
        self.articles.check(complete=True)
