"""The primary crashes and its standby is promoted: clients that name both find the new primary."""

from __future__ import annotations

import asyncio
import shutil
import signal
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex.errors import EmbeddedServerError
from semlex.proof.children import until
from semlex.proof.crashes import kill_server, start
from semlex.proof.faults import expect
from semlex.proof.interruptions import Interrupted
from semlex.store.postgres.embedded.folder import find_installations, run_as, server_account
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.proving.ground import connected, promote, set_server, waits_for_standby

if TYPE_CHECKING:
    from pathlib import Path

    from semlex.proof.traffic import Traffic


class Failovers(Interrupted):
    """A primary with a standby for which commits wait; after each failover there is a new standby."""

    name = "failover"
    what = (
        "the primary killed and its standby promoted under writers, searchers and a merger; commits wait for the "
        "standby"
    )
    own_server = True
    _standby: EmbeddedServer | None = None

    def begin(self) -> None:
        self._primary = self.site.new_server("primary")
        self.opened.callback(self._close_servers)

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
        await traffic.progress()

    def _fail_over(self) -> None:
        standby = self._standby
        assert standby is not None  # noqa: S101 - made before each round
        kill_server(self._primary.folder, self.chance.choice((signal.SIGKILL, signal.SIGQUIT)))
        with connected(standby.url) as connection:
            expect(promote(connection), "wrong", "the standby was not promoted")
        self._primary.close()
        # Its next start, in a place that no client knows, removes what it has left in shared memory.
        former = self._primary.folder.rename(self.site.new_folder("former"))
        start(former)
        shutil.rmtree(former, ignore_errors=True)
        self._primary, self._standby = standby, None

    def _close_servers(self) -> None:
        for server in (self._standby, self._primary):
            if server is not None:
                server.close()


def copy_for_standby(primary: EmbeddedServer, folder: Path) -> None:
    """Make a standby's folder: a copy of the primary's data, with the primary's address in its settings."""
    account = server_account(primary.folder / "data")
    folder.mkdir(mode=0o711)
    (folder / "start.lock").touch()  # by which the embedded server knows a folder of its own
    (folder / "data").mkdir(mode=0o700)
    if account is not None:
        shutil.chown(folder / "data", account.uid, account.gid)
    program = find_installations(account)[primary.major] / "pg_basebackup"
    options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "--wal-method=stream"]
    made = run_as(account, [str(program), f"--dbname={primary.url}", "--pgdata=data", *options], folder=folder)
    if made.returncode != 0:
        raise EmbeddedServerError(f"the standby in {folder} was not made: {made.stderr}")


def address_of_both(first: str, second: str, **options: str) -> str:
    """Return the address of two servers, which a client tries in this order."""
    parts = [conninfo_to_dict(one) for one in (first, second)]
    hosts = {name: ",".join(str(one[name]) for one in parts) for name in ("host", "port")}
    return make_conninfo(first, **hosts, **options)
