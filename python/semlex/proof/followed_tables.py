"""A run over a followed table that is killed: its next run brings the collection in step, each row once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from semlex.proof.check import SHOWN, check_present, whole_documents
from semlex.proof.faults import expect
from semlex.proof.kills import Killed
from semlex.proof.texts import draw_text
from semlex.store.proving.articles import Articles
from semlex.store.proving.ground import connected, end_table_leases

if TYPE_CHECKING:
    from semlex.proof.kills import Acknowledge, Limits
    from semlex.retriever.synchronous import SyncClient, SyncCollection

ROWS = 40


class Following(Killed):
    """A collection brought in step with a table whose rows were added, changed and deleted."""

    name = "kill-follow"
    what = "a collection brought in step with a table whose rows were added, changed and deleted"

    def begin(self) -> None:
        super().begin()
        self._table = Articles(self.site.schema, f"{self.names.collection}_articles")
        self._ever: set[tuple[str, str]] = set()
        with connected(self.site.url) as connection:
            self._table.create(connection)
        self.collection.count()  # makes it
        way: Literal["trigger", "comparison"] = self.chance.choice(("trigger", "comparison"))
        self.collection.tables.follow(
            self._table.name, name="articles", schema=self.site.schema, key=["id"], text=["body"], changes=way
        )

    def limits(self) -> Limits:
        return {
            "semlex.ingest.followed.run": {"BATCH_ROWS": 5, "METADATA_ROWS": 5},
            "semlex.ingest.followed.comparison": {"KEYS_AT_ONCE": 7},
        }

    def draw(self) -> None:
        rows = {one: draw_text(self.chance) for one in self.chance.sample(range(ROWS), 15)}
        with connected(self.site.url) as connection:
            self._table.put(connection, rows)
            gone = self.chance.sample(sorted(self._table.rows(connection)), 4)
            self._table.delete(connection, gone)
        self._ever |= {(f"articles/{one}", text) for one, text in rows.items()}

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client, arguments
        collection.tables.sync()
        acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged, arguments
        self._check_rows()

    def finish(self, arguments: Any) -> None:
        with connected(self.site.url) as connection:
            end_table_leases(connection, self.names)
        super().finish(arguments)

    def check(self) -> None:
        stored = self._check_rows()
        with connected(self.site.url) as connection:
            rows = {f"articles/{one}": text for one, text in self._table.rows(connection).items()}
        check_present(stored, rows, "row")

    def _check_rows(self) -> dict[str, str]:
        found = whole_documents(self.site.url, self.names, self.model) or []
        other = [name for name, _, text in found if (name, text) not in self._ever]
        expect(not other, "wrong", f"texts that their rows never had: {other[:SHOWN]}")
        return {name: text for name, _, text in found}
