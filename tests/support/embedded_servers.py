"""What runs in the folder of an embedded server, found by another way than the code under test."""

import psutil
import psycopg


def server_processes(folder):
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and process.status() != psutil.STATUS_ZOMBIE:
                found += [process] if process.cwd() == str(folder / "data") else []
        except psutil.Error:
            continue
    return found


def postmaster_pid(folder):
    return int((folder / "data" / "postmaster.pid").read_text().split()[0])


def ask(url, statement):
    with psycopg.connect(url) as connection:
        return connection.execute(statement).fetchone()[0]


def configure(folder, **settings):
    with (folder / "data" / "postgresql.auto.conf").open("a") as file:
        file.writelines(f"{name} = {value}\n" for name, value in settings.items())
