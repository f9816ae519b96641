"""A standby by streaming replication: a copy of a running server that follows it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex.errors import EmbeddedServerError
from semlex.store.postgres.embedded.folder import find_installations, run_as, server_account

if TYPE_CHECKING:
    from pathlib import Path

    from semlex.store.postgres.embedded.server import EmbeddedServer


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
