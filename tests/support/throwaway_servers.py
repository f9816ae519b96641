"""A Postgres of any programs, in a folder that is deleted afterwards."""

import shlex
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from semlex.errors import EmbeddedServerError
from semlex.store.postgres.embedded.folder import require_traversable, run_as, server_account

USER = "postgres"


@contextmanager
def throwaway_server(tree, place, settings, *, parent=Path("/tmp"), rules=(), files=None, primary=None):  # noqa: S108
    """Runs a server until the end of the block.

    Args:
        tree: A folder of programs with all libraries that they find relative to themselves.
        place: The folder in it that holds ``bin/initdb``.
        settings: Settings of the server.
        parent: Where its folder is made.
        rules: Lines of ``pg_hba.conf``, before the one that trusts everybody on this machine.
        files: Files that only the server may read, by their names in its data folder.
        primary: Address of a server whose standby this one is; None for a server of its own.

    Yields:
        The address of its database ``postgres`` for libpq, on a Unix socket.
    """
    folder = Path(tempfile.mkdtemp(prefix="semlex-server-", dir=parent)).resolve()
    folder.chmod(0o711)
    account = server_account(folder / "data")

    def run(program, *arguments):
        result = run_as(account, [str(installed / "bin" / program), "-D", "data", *arguments], folder=folder)
        if result.returncode != 0:
            log = folder / "log"
            raise RuntimeError(f"{program}: {result.stdout}{result.stderr}{log.read_text() if log.exists() else ''}")

    try:
        installed = tree.resolve() / place
        try:
            require_traversable(tree.resolve(), account)
        except EmbeddedServerError:  # root's server runs as another account, which cannot get through
            installed = shutil.copytree(tree, folder / "programs", symlinks=True) / place
        if account is not None:
            shutil.chown(folder, account.uid, account.gid)
        if primary is None:
            run("initdb", f"--username={USER}", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions")
        else:
            run("pg_basebackup", f"--dbname={primary}", "--checkpoint=fast", "--no-sync", "--write-recovery-conf")
        if rules:
            hba = folder / "data" / "pg_hba.conf"
            hba.write_text("\n".join([*rules, hba.read_text()]))
        for name, file in (files or {}).items():
            copy = shutil.copy(file, folder / "data" / name)
            Path(copy).chmod(0o600)
            if account is not None:
                shutil.chown(copy, account.uid, account.gid)
        # Thrown away at the end: what survives a crash is nobody's question here.
        chosen = {"listen_addresses": "", "fsync": "off", "unix_socket_directories": str(folder)} | dict(settings)
        options = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in chosen.items())
        run("pg_ctl", "-l", "log", "-w", "-o", options, "start")
        try:
            yield f"postgresql://{USER}@/postgres?host={folder}&port={chosen.get('port', 5432)}"
        finally:
            run("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
