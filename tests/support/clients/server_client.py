"""A process for tests that uses the server of a folder, reports which server runs there, and obeys commands."""

import os  # noqa: F401 - for its orders
import sys
import threading  # noqa: F401
from pathlib import Path

import psycopg

from semlex.proof.children import say
from semlex.store.postgres.embedded.server import EmbeddedServer

if __name__ == "__main__":
    server = EmbeddedServer(Path(sys.argv[1]))
    url = server.start()
    with psycopg.connect(url) as connection:
        statement = "SELECT system_identifier, pg_postmaster_start_time() FROM pg_control_system()"
        say(connection.execute(statement).fetchone())
    exec(sys.argv[2])  # noqa: S102 - of a test
