"""What runs in the folder of an embedded server, found by another way than the code under test."""

from __future__ import annotations

from pathlib import Path

import psutil
import psycopg


def server_processes(folder: Path) -> list[psutil.Process]:
    """The living Postgres processes of a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and process.status() != psutil.STATUS_ZOMBIE:
                found += [process] if process.cwd() == str(folder / "data") else []
        except psutil.Error:
            continue
    return found


def postmaster_pid(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().split()[0])


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


def configure(folder: Path, **settings: str) -> None:
    """Sets what the server of a folder starts with."""
    with (folder / "data" / "postgresql.auto.conf").open("a") as file:
        file.writelines(f"{name} = {value}\n" for name, value in settings.items())
