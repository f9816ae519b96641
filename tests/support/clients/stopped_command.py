"""A program for tests: the command line, until it stops itself at a moment of one of its transactions."""

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import psycopg

from semlex.__main__ import main as semlex_main
from semlex.proof.children import set_limits, stop_at
from tests.support.programs import Program
from tests.support.waiting import held, until_waiting


def main(url, arguments, moment, folder=Path(), limits=None):
    os.environ["DATABASE_URL"] = url
    os.chdir(folder)
    set_limits(limits or {})
    stop_at(*moment)
    sys.argv = ["semlex", *arguments]
    semlex_main()


@contextmanager
def halted(shell, arguments, moment, table, *, mode="SHARE", limits=None):
    """A command that has passed its moment and waits for a lock on a table: within the block it cannot end.

    `moment` and `limits` are those of `stop_at` and `set_limits`; `table` is a name, or a pattern that one name
    matches. A lock in the mode ``SHARE`` holds up writers, ``ACCESS EXCLUSIVE`` readers as well.
    """
    url = shell.environment["DATABASE_URL"]
    with Program(main, url, arguments, moment, shell.folder, limits) as program:
        program.until_stopped()
        with psycopg.connect(url) as connection:
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'semlex' AND tablename LIKE %s"
            ((name,),) = connection.execute(tables, [table]).fetchall()
        # It may have stopped inside a transaction that has the table.
        with held(url, f"semlex.{name}", mode, asked=lambda: program.send(signal.SIGCONT)) as connection:
            until_waiting(connection)
            yield program, connection
