"""A dump restored by a process that is killed: the collection is there as a whole, or not at all."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from semlex.proof.check import check_stored
from semlex.proof.kills import Killed

if TYPE_CHECKING:
    from semlex.proof.kills import Acknowledge
    from semlex.retriever.synchronous import SyncClient, SyncCollection

TEXTS = 100


class Restoring(Killed):
    """A dump restored into a new collection."""

    name = "kill-restore"
    what = "a dump restored into a new collection"
    needs = "" if find_spec("pyarrow") else "needs pyarrow, as dumps are Parquet (pip install semlex[arrow])"

    def begin(self) -> None:
        super().begin()
        self._folder = self.site.new_folder("dump")
        self._dumped = self.some_texts(TEXTS)
        source = self.client.collection(f"{self.names.collection}_source")
        source.add_texts(list(self._dumped.values()), ids=list(self._dumped))
        source.tables.dump(self._folder)

    def draw(self) -> tuple[str, str]:
        self.drop()
        return str(self._folder), self.names.collection

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del collection
        client.restore(*arguments)
        acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del arguments
        states = [{}, self._dumped][acknowledged:]
        self._restored = check_stored(self.site.url, self.names, states, self.model)

    def finish(self, arguments: Any) -> None:
        if not self._restored:
            self.do(self.client, self.collection, arguments, lambda: None)
        self.texts = self._dumped
