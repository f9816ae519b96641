"""A primary and its hot standby by streaming replication, on this machine."""

import os
import signal
from contextlib import contextmanager

import psycopg

from semlex.proof.interruptions import address_of_both, copy_for_standby
from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.support.embedded_servers import ask, configure, postmaster_pid, server_processes
from tests.support.waiting import eventually, until

SETTINGS = {
    "fsync": "off",  # thrown away afterwards
    # A row that a search on the standby still sees may be gone on the primary: with feedback the primary would keep it,
    # and with a delay (30 s) the standby would wait for the search. Without both every conflict ends the search at
    # once, which is the worst that a standby can do to one.
    "hot_standby_feedback": "off",
    "max_standby_streaming_delay": "0",
    "autovacuum": "off",  # the tests say when
}


class Pair:
    """A primary and its standby: the addresses of the same database."""

    def __init__(self, primary, standby):
        self.primary, self.standby = primary.url, standby.url
        self._primary_folder, self._standby = primary.folder, standby

    def both(self, **options):
        """The address of both, the standby first, which a client tries first."""
        return address_of_both(self.standby, self.primary, **options)

    def stop_primary(self):
        _crash(self._primary_folder)

    def stop_standby(self):
        _crash(self._standby.folder)

    def start_standby(self):
        """Starts it again after `stop_standby`, at the same address."""
        self._standby.close()
        assert self._standby.start() == self.standby

    def promote(self):
        with psycopg.connect(self.standby, autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote(true, 120)").fetchone() == (True,)

    async def catch_up(self):
        """Waits until the standby has everything that the primary has written."""
        with psycopg.connect(self.primary, autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        with psycopg.connect(self.standby, autocommit=True) as connection:
            replayed = "SELECT pg_last_wal_replay_lsn() >= %s"
            await eventually(lambda: connection.execute(replayed, row).fetchone() == (True,))

    def conflicts(self):
        """How many searches the standby has ended for the primary's sake."""
        counted = "SELECT confl_snapshot + confl_lock FROM pg_stat_database_conflicts"
        return ask(self.standby, f"{counted} WHERE datname = current_database()")


def _crash(folder):
    os.kill(postmaster_pid(folder), signal.SIGQUIT)
    until(lambda: not server_processes(folder))


@contextmanager
def replicated(folder, make):
    """A pair in a folder; `make` is the fixture `make_server_folder`."""
    made = make(folder / "primary")
    configure(made, **SETTINGS)
    with EmbeddedServer(made) as primary:
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
        copy_for_standby(primary, folder / "standby")
        with EmbeddedServer(folder / "standby") as standby:
            yield Pair(primary, standby)
