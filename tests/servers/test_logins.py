"""Logging in to a server with passwords (SCRAM) and certificates (TLS), over TCP."""

import subprocess

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex.errors import ConnectionFailedError
from semlex.types.documents import Document
from tests.support.folders import TEMPORARY
from tests.support.retrievers import sync_opened
from tests.support.servers import free_port, programs_of, running
from tests.support.shell import Shell
from tests.support.throwaway_servers import throwaway_server
from tests.support.waiting import LIMIT

# Planted as passwords: they may stand in no message.
RIGHT, WRONG = "zebra stripes@/%", "lion's:mane?"
LOGIN = "semlex_login"
BY_NUMBER = {"password": RIGHT, "host": "127.0.0.1"}
RULES = ("hostnossl all +semlex_login 127.0.0.1/32 reject", "host all +semlex_login all scram-sha-256")


def run(*command, folder):
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def make_certificates(folder):
    """A certificate for ``localhost``, by an authority of its own whose certificate is ``authority.pem``."""
    key = ("-newkey", "rsa:2048", "-nodes")
    run("openssl", "req", "-x509", *key, "-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=Tests",
        "-days", "2", folder=folder)  # fmt: skip
    run("openssl", "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost", folder=folder)
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    run("openssl", "x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-days", "2",
        "-CAcreateserial", "-extfile", "names", "-out", "server.crt", folder=folder)  # fmt: skip
    return {name: folder / name for name in ("server.key", "server.crt")}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def address(certificates):
    """The address of a server that demands a password and TLS, without user and password."""
    files = make_certificates(certificates)
    (certificates / "other").mkdir()
    make_certificates(certificates / "other")
    tree, place = programs_of(15)
    settings = {"listen_addresses": "localhost", "port": str(free_port()), "ssl": "on"}
    with throwaway_server(tree, place, settings, parent=TEMPORARY, rules=RULES, files=files) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute("SET password_encryption = 'scram-sha-256'")
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(LOGIN), RIGHT))
            connection.execute(f"GRANT CREATE ON DATABASE postgres TO {LOGIN}")
        yield make_conninfo(url, host="localhost", user=LOGIN, sslrootcert=str(certificates / "authority.pem"))


def retriever_of(address, **options):
    return sync_opened(make_conninfo(address, **options), timeout=LIMIT)


def refusal(address, **options):
    """The message of a server that cannot be used, which names the place and shows no password."""
    with pytest.raises(ConnectionFailedError) as caught:
        retriever_of(address, **options).initialize()
    message = str(caught.value)
    assert f"user={LOGIN}" in message
    assert not any(secret in message for secret in (RIGHT, WRONG))
    return message


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_a_password_and_a_certificate_that_match(address, mode):
    with retriever_of(address, password=RIGHT, sslmode=mode) as retriever:
        retriever.add_documents([Document("a stone in the river", id="stone"), Document("a cloud", id="cloud")])
        assert [hit.id for hit in retriever.search("stone", 1)] == ["stone"]
        assert retriever.drop_collection()
    if mode != "verify-full":  # the client does not check the name of the host
        with retriever_of(address, sslmode=mode, **BY_NUMBER) as retriever:
            assert retriever.count() == 0
            assert retriever.drop_collection()


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"password": WRONG}, ('password authentication failed for user "semlex_login"', "check user and password")),
        ({}, ("no password supplied", "PGPASSWORD")),
        (BY_NUMBER, ('certificate for "localhost"', "connect by a name that is in the certificate")),
        ({"password": RIGHT, "sslrootcert": "other/authority.pem"}, ("certificate verify failed", "sslrootcert=")),
        ({"password": RIGHT, "sslrootcert": "missing.pem"}, ("sslrootcert=",)),
        ({"password": RIGHT, "sslmode": "disable"}, ("takes this login over TLS only",)),
    ],
)
def test_logins_that_are_refused(address, certificates, options, messages):
    if (certificate := options.get("sslrootcert")) is not None:
        options = options | {"sslrootcert": str(certificates / certificate)}
    message = refusal(address, **{"sslmode": "verify-full", **options})
    assert [one for one in messages if one not in message] == []


def test_a_server_without_tls():
    with running("postgres-18") as server, pytest.raises(ConnectionFailedError, match="turn TLS on in the server"):
        sync_opened(make_conninfo(server.direct, sslmode="require"), timeout=LIMIT).initialize()


def test_on_the_command_line(address, tmp_path):
    shell = Shell(make_conninfo(address, password=WRONG, sslmode="verify-full"), tmp_path)
    done = shell("status", code=3)
    assert done.stdout == ""
    assert "check user and password" in done.stderr
    assert WRONG not in done.stderr
