"""The primary crashes and its standby is promoted: clients that name both find the new primary."""

from __future__ import annotations

import asyncio
import shutil
import signal
from typing import TYPE_CHECKING

from semlex.proof.children import until
from semlex.proof.crashes import SETTINGS, kill_server
from semlex.proof.faults import expect
from semlex.proof.interruptions import Interrupted
from semlex.proof.scenarios import Kind
from semlex.proof.standby import address_of_both, copy_for_standby
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.proving.ground import connected, set_server
from semlex.store.proving.replication import promote, waits_for_standby

if TYPE_CHECKING:
    import random

    from semlex.proof.site import Site
    from semlex.proof.traffic import Traffic


class Failovers(Interrupted):
    """A primary with a standby for which commits wait; after each failover there is a new standby."""

    name = "failover"

    def __init__(self, site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self._primary = site.new_server("primary")
        self._standby: EmbeddedServer | None = None
        with connected(self._primary.url) as connection:
            set_server(connection, SETTINGS)

    @property
    def address(self) -> str:
        assert self._standby is not None  # noqa: S101 - made before each round
        return address_of_both(self._standby.url, self._primary.url, target_session_attrs="read-write")

    @property
    def stored_at(self) -> str:
        return self._primary.url

    async def _round(self) -> None:
        await asyncio.to_thread(self._make_standby)
        await self.with_traffic()

    def _make_standby(self) -> None:
        folder = self.site.new_folder("standby")
        copy_for_standby(self._primary, folder)
        self._standby = EmbeddedServer(folder, major=self._primary.major)
        self._standby.start()
        with connected(self._primary.url) as connection:
            set_server(connection, {"synchronous_standby_names": "*"})
            until(lambda: waits_for_standby(connection), "commits that wait for the standby")

    async def interrupt(self, application: str, traffic: Traffic) -> None:
        del application
        await asyncio.to_thread(self._fail_over)
        await traffic.progress_of_the_living()

    def _fail_over(self) -> None:
        standby = self._standby
        assert standby is not None  # noqa: S101 - made before each round
        kill_server(self._primary.folder, self.chance.choice((signal.SIGKILL, signal.SIGQUIT)))
        with connected(standby.url) as connection:
            expect(promote(connection), "wrong", "the standby was not promoted")
        self._primary.close()
        shutil.rmtree(self._primary.folder, ignore_errors=True)
        self._primary, self._standby = standby, None

    def close(self) -> None:
        for server in (self._standby, self._primary):
            if server is not None:
                server.close()


KINDS = [
    Kind(
        "failover",
        "failover",
        "the primary killed and its standby promoted under writers, searchers and a merger; commits wait for the "
        "standby",
        Failovers,
        own_server=True,
    )
]
