"""The servers of ``./x test --servers``: other versions, a PgBouncer, a plain role, a primary with a standby.

``python -m tests.support.servers NAME...`` gets what they need, and says what this machine lacks.
"""

import platform
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benches.bm25_server import PROGRAMS, fetch
from semlex.proof.interruptions import address_of_both
from semlex.store.postgres.embedded.folder import find_installations, server_account
from semlex.store.proving import set_server, waits_for_standby
from tests.support.databases import ServerAddress
from tests.support.folders import ROOT, TEMPORARY, new_open_folder
from tests.support.throwaway_servers import throwaway_server
from tests.support.waiting import until

STATE = ROOT / ".state"
VERSIONS = {f"postgres-{major}": major for major in (15, 16, 17, 18)}
POOLER, PLAIN_ROLE, REPLICAS, OWN = "pgbouncer", "plain-role", "replicas", "own"
NAMES = (*VERSIONS, POOLER, PLAIN_ROLE, REPLICAS, OWN)
OF_THE_WHEEL = (16, 18)
# Debian's, of the system's packages. Its package of pgvector is for a later version only.
SYSTEM_15 = Path("/usr/lib/postgresql/15")
DEBIAN_WITH_PGVECTOR = "trixie"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ROLE = "semlex_plain"


class LackingError(Exception):
    """This machine lacks something; the message says how to get it."""


# --- programs -------------------------------------------------------------------------------------------------------


def major_of(name):
    if name not in NAMES:
        raise LackingError(f"no server is called {name!r}; known: {', '.join(NAMES)}")
    return 15 if name == OWN else VERSIONS.get(name, max(VERSIONS.values()))  # the only one with TLS


def programs_of(major):
    """The folder of a version's programs with their libraries, and the place of ``bin`` in it; gets them if need be."""
    if major in OF_THE_WHEEL:
        folder = find_installations(server_account(Path("/nowhere")))[major].parent
        return folder.parent.parent, str(folder.relative_to(folder.parent.parent))
    if major == 17:
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            raise LackingError("Postgres 17 with pgvector is not available for this machine; name other servers")
        fetch(STATE / "bm25-server")
        return STATE / "bm25-server", PROGRAMS
    return _postgres_15(), str(SYSTEM_15).lstrip("/")


def _postgres_15():
    """A copy of the system's Postgres 15, with pgvector compiled for it."""
    made = STATE / "postgres-15"
    if (made / "made").exists():
        return made
    paths = (SYSTEM_15 / "bin" / "initdb", Path("/usr/include/postgresql/15/server/postgres.h"))
    if not all(path.exists() for path in paths) or not all(map(shutil.which, ("gcc", "make", "apt-get"))):
        needed = "postgresql-15 postgresql-server-dev-15 gcc make"
        raise LackingError(f"Postgres 15 is not installed here: apt-get install {needed}")
    shutil.rmtree(made, ignore_errors=True)
    share = Path("/usr/share/postgresql/15")
    for folder in (SYSTEM_15, share):
        shutil.copytree(folder, made / folder.relative_to("/"), ignore_dangling_symlinks=True)
    source = _source_of_pgvector(made / "source")
    options = [f"PG_CONFIG={SYSTEM_15 / 'bin' / 'pg_config'}", "OPTFLAGS=", "with_llvm=no"]
    subprocess.run(["make", "--silent", *options], cwd=source, check=True, stdout=sys.stderr)
    shutil.copy(source / "vector.so", made / SYSTEM_15.relative_to("/") / "lib")
    for file in (source / "vector.control", *source.glob("sql/vector--*.sql")):
        shutil.copy(file, made / share.relative_to("/") / "extension")
    shutil.rmtree(made / "source")
    (made / "made").touch()
    return made


def _source_of_pgvector(folder):
    for name in ("sources", "lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    targets = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Identifier: Packages"]
    listed = subprocess.run(targets, check=True, capture_output=True, text=True).stdout.splitlines()
    places = [line.split()[1] for line in listed if line.startswith("Debian ") and "security" not in line]
    if not places:
        raise LackingError("pgvector for Postgres 15 is compiled from Debian's source package, and apt has no Debian")
    signed = f"[signed-by={KEYS}] " if KEYS.exists() else ""
    (folder / "sources" / "debian.list").write_text(f"deb-src {signed}{places[0]} {DEBIAN_WITH_PGVECTOR} main\n")
    options = ["APT::Sandbox::User=", "Dir::Etc::sourcelist=/dev/null", f"Dir::Etc::sourceparts={folder / 'sources'}"]
    options += [f"Dir::State::lists={folder / 'lists'}", f"Dir::Cache={folder / 'cache'}"]
    apt = ["apt-get", "-qq", *(f"-o{option}" for option in options)]
    for command in (["update"], ["source", "--download-only", "pgvector"]):
        subprocess.run([*apt, *command], cwd=folder, check=True, stdout=sys.stderr)
    [archive] = folder.glob("pgvector_*.orig.tar.*")
    shutil.unpack_archive(archive, folder, filter="data")
    [unpacked] = [path for path in folder.glob("pgvector-*") if path.is_dir()]
    return unpacked


def pgbouncer():
    if found := shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin"):
        return found
    raise LackingError("PgBouncer is not installed here: apt-get install pgbouncer (brew install pgbouncer)")


def prepare(names):
    """Gets what servers need, before several processes of the tests start them."""
    for name in names:
        programs_of(major_of(name))
        if name == POOLER:
            pgbouncer()
        if name == OWN and not shutil.which("openssl"):
            raise LackingError("openssl, which makes certificates, is not installed here: apt-get install openssl")


# --- servers --------------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(name):
    """Runs a server of a name on the loopback interface, until the end of the block."""
    # Thrown away, and statistics that a background process takes at some moment would change plans by chance.
    settings = dict.fromkeys(("full_page_writes", "autovacuum", "wal_init_zero"), "off")
    settings |= {"shared_buffers": "32MB", "listen_addresses": "127.0.0.1", "max_connections": "200"}
    settings["port"] = str(free_port())
    tree, place = programs_of(major_of(name))
    with throwaway_server(tree, place, settings, parent=TEMPORARY) as socket_url:
        direct = make_conninfo(socket_url, host="127.0.0.1")
        if name == POOLER:
            with _pooled(socket_url) as url:
                yield ServerAddress(direct, url, is_pooled=True)
        elif name == PLAIN_ROLE:
            with psycopg.connect(direct, autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(ROLE)))
            yield ServerAddress(direct, make_conninfo(direct, user=ROLE), ROLE)
        elif name == REPLICAS:
            with _standby(direct, tree, place, settings) as standby:
                # The primary first: connections of the tests themselves take the first host.
                yield ServerAddress(direct, address_of_both(direct, standby))
        else:
            yield ServerAddress(direct, direct)


@contextmanager
def _standby(primary, tree, place, settings):
    """Runs a standby that shows every commit of the primary before the primary reports it as done."""
    # The primary keeps rows that a search on the standby still sees: a conflict would send that search to the primary.
    own = {**settings, "port": str(free_port()), "hot_standby_feedback": "on"}
    with throwaway_server(tree, place, own, parent=TEMPORARY, primary=primary) as socket_url:
        with psycopg.connect(primary, autocommit=True) as connection:
            set_server(connection, {"synchronous_standby_names": "*", "synchronous_commit": "remote_apply"})
            until(lambda: waits_for_standby(connection))
        yield make_conninfo(socket_url, host="127.0.0.1")


@contextmanager
def _pooled(url):
    """Runs PgBouncer in transaction mode before a server on a Unix socket; yields the address of the same database."""
    parts, port = conninfo_to_dict(url), free_port()
    with new_open_folder() as folder, (folder / "log").open("wb") as log:
        settings = {"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "trust"}
        settings |= {"auth_file": folder / "users", "pool_mode": "transaction", "default_pool_size": 20}
        lines = [f"{name} = {value}" for name, value in (settings | {"max_client_conn": 1000}).items()]
        server = f"* = host={parts['host']} port={parts['port']}"
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text("\n".join(["[databases]", server, "[pgbouncer]", *lines, ""]))
        account, streams = server_account(folder / "data"), {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        other = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
        process = subprocess.Popen([pgbouncer(), folder / "pgbouncer.ini"], **streams, **other)
        try:
            pooled = make_conninfo(url, host="127.0.0.1", port=port)
            until(lambda: _answers(pooled, process, folder / "log"))
            yield pooled
        finally:
            process.terminate()
            process.wait()


def _answers(url, process, log):
    if process.poll() is not None:
        raise RuntimeError(f"PgBouncer ended: {log.read_text()}")
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


if __name__ == "__main__":
    try:
        prepare(sys.argv[1:])
    except LackingError as error:
        sys.exit(f"error: {error}")
