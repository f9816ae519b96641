"""A program for tests: the command line, until it stops itself at a moment of one of its transactions."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from semlex.__main__ import main as semlex_main
from semlex.proof.children import set_limits, stop_at
from tests.support.programs import Program
from tests.support.waiting import held, until_waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import Connection

    from tests.support.shell import Shell

    Moment = tuple[str, str, int]
    Limits = dict[str, dict[str, int]]


def main(
    url: str, arguments: Sequence[str], moment: Moment, folder: Path = Path(), limits: Limits | None = None
) -> None:
    """Runs `semlex` with the arguments."""
    os.environ["DATABASE_URL"] = url
    os.chdir(folder)
    set_limits(limits or {})
    stop_at(*moment)
    sys.argv = ["semlex", *arguments]
    semlex_main()


@contextmanager
def halted(
    shell: Shell,
    arguments: Sequence[str],
    moment: Moment,
    table: str,
    *,
    mode: str = "SHARE",
    limits: Limits | None = None,
) -> Iterator[tuple[Program, Connection]]:
    """A command that has passed its moment and waits for a lock on a table: within the block it cannot end.

    Args:
        shell: Its database and its folder are those of the command.
        arguments: Of `semlex`.
        moment: Arguments of `stop_at`.
        table: Name of a table of semlex, or a pattern that one name matches.
        mode: Of the lock: ``SHARE`` holds up writers, ``ACCESS EXCLUSIVE`` readers as well.
        limits: As for `set_limits`.
    """
    url = shell.environment["DATABASE_URL"]
    with Program(main, url, arguments, moment, shell.folder, limits) as program:
        program.until_stopped()
        with psycopg.connect(url) as connection:
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'semlex' AND tablename LIKE %s"
            ((name,),) = connection.execute(tables, [table]).fetchall()
        with held(url, f"semlex.{name}", mode) as connection:
            program.send(signal.SIGCONT)
            until_waiting(connection)
            yield program, connection
