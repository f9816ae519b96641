"""A transaction pooler between clients and server is restarted: its connections break, and clients come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from semlex.proof.interruptions import Interrupted
from semlex.proof.traffic import eventually
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.proving.ground import connected, has_busy_backends

if TYPE_CHECKING:
    from semlex.proof.traffic import Traffic

SIZE = 4


class PoolerRestarts(Interrupted):
    """A pooler that lends the server's connections for a transaction, and is restarted at the same address."""

    name = "pooler"
    what = "a pooler in transaction mode restarted under writers, searchers and a merger"
    own_server = True

    def begin(self) -> None:
        self._server = self.site.server("pooled")

    @property
    def address(self) -> str:
        return self._pooler.address

    @property
    def stored_at(self) -> str:
        return self._server.url

    async def _round(self) -> None:
        self._pooler = await TransactionPooler(self._server.url, SIZE).__aenter__()
        try:
            await self.with_traffic()
        finally:
            await self._pooler.__aexit__()

    async def interrupt(self, application: str, traffic: Traffic) -> None:
        del application
        port = int(str(conninfo_to_dict(self._pooler.address)["port"]))
        await self._pooler.__aexit__()
        # What was on its way is done or undone.
        with connected(self._server.url) as connection:
            await eventually(lambda: not has_busy_backends(connection), "the end of broken transactions")
        self._pooler = await TransactionPooler(self._server.url, SIZE, port=port).__aenter__()
        await traffic.progress()
