"""Who may do what: every route with every right and collection; hosts, origins and tokens in every combination."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from itertools import product
from threading import Thread

import psycopg
import pytest

from semlex.errors import ConfigurationError
from semlex.retriever.operations import OPERATIONS
from semlex.server import tokens
from semlex.server.addresses import Addresses, address_to_ask, bound_socket, places
from semlex.server.app import create_app
from semlex.server.options import ServeOptions
from semlex.server.request_context import OPERATION, RIGHTS
from semlex.server.tokens import OF_JOBS, ORDER, Caller, TokenFile, caller_of
from semlex.types.documents import utc_now
from tests.support.http_server import COLLECTION, FixedSettings, in_process, settings_for

JOB = "00000000-0000-4000-8000-000000000000"
# What a valid request of each operation is made with, beside the collection.
BODIES = {
    "search": {"query": "key"},
    "candidates": {"query": "key"},
    "search page": {"cursor": "torn"},
    "search many": {"queries": ["key"]},
    "why": {"question": "key", "document": "d0"},
    "facets": {"fields": ["year"]},
    "context": {"question": "key"},
    "answer": {"question": "key"},
    "add documents": {"documents": [{"content": "One.", "id": "d0"}]},
    "delete": {"ids": ["nothing"]},
    "submit job": {"kind": "add", "arguments": {"documents": [{"content": "x", "id": "d0"}]}},
    "index": {"paths": ["/nowhere"]},
    "judge": {"question": "key", "judgements": {"d0": 1}},
}
# Of routes that are no operation on a collection.
OTHER_BODIES = {
    "/v1/embeddings": {"input": "key"},
    f"/v1/collections/{COLLECTION}/description": {"text": "Keys."},
    "/v1/rerank": {"query": "key", "documents": ["key"]},
    "/v2/rerank": {"query": "key", "documents": ["key"]},
}
PARAMETERS = {"get document": {"document": "d0"}, "outline": {"document": "d0"}, "judgements": {"question": "key"}}
PLACES = {"{name}": COLLECTION, "{id}": "d0", "{id:path}": "d0", "{job_id}": JOB, "{file}": "main.js"}
# Operations that are not about one collection: they leave out what the caller does not see.
OF_ALL = {"list collections", "get job", "cancel job", "retry job", "about page"}
OPEN = {"/healthz", "/readyz", "/", "/page/{file}"}


def routes():
    """Method, path, operation and rights of every route, aliases included."""
    app = create_app(ServeOptions(), FixedSettings(settings_for()))
    found = []

    def walk(listed):
        for route in listed:
            if hasattr(route, "openapi_extra"):
                extra = route.openapi_extra or {}
                found.extend(
                    (method, route.path, extra.get(OPERATION, ""), extra.get(RIGHTS, "")) for method in route.methods
                )
            else:
                walk(getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", []))

    walk(app.routes)
    return found


ROUTES = routes()


def test_all_routes_are_known_here():
    assert len(ROUTES) >= 35
    assert {path for _, path, _, rights in ROUTES if not rights} == OPEN
    assert {"/search", "/index", "/query", "/v1/search"} <= {path for _, path, _, _ in ROUTES}


@pytest.mark.slow
async def test_no_route_does_more_than_the_rights_and_collections_of_its_caller(  # noqa: C901 - a table
    changing, tmp_path
):
    file = TokenFile(tmp_path / "tokens.json")
    secrets = {}
    for rights, seen in product(ORDER, ("all", "own", "other")):
        collections = {"all": (), "own": (COLLECTION,), "other": ("other",)}[seen]
        secrets[rights, seen] = file.add(f"{rights}-{seen}", rights, collections)
    needed = {name: one.rights for name, one in OPERATIONS.items()} | {"judge": "write"}  # the page's own
    tried = 0
    async with in_process(changing, token_file=file.path, rate=0) as served:

        async def ask(method, path, operation, secret):
            takes_collection = method == "GET" and operation and "{name}" not in path and operation not in OF_ALL
            for name, value in PLACES.items():
                path = path.replace(name, value)
            headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
            body = None
            if method in ("POST", "PUT") or operation == "delete":
                body = OTHER_BODIES.get(path) or {**BODIES.get(operation, {}), "collection": COLLECTION}
            parameters = {**PARAMETERS.get(operation, {}), "collection": COLLECTION} if takes_collection else None
            answer = await served.http.request(method, path, json=body, params=parameters, headers=headers)
            return answer.status_code

        for method, path, operation, rights in sorted(ROUTES, key=lambda route: route[2] == "drop"):
            if path in OPEN:
                assert await ask(method, path, operation, None) == 200
                continue
            assert rights == needed.get(operation, "read")
            for wrong in (None, "", "semlex_" + "A" * 43, secrets["admin", "all"][:-1]):
                assert await ask(method, path, operation, wrong) == 401, (path, wrong)
            for (has, seen), secret in secrets.items():
                status = await ask(method, path, operation, secret)
                may = ORDER.index(has) >= ORDER.index(rights)
                about_collection = operation not in OF_ALL and operation != ""
                refused = not may or (about_collection and seen == "other")
                if operation == "index" and not refused:
                    assert status == 403  # its path is in no folder that may be read
                elif operation == "drop" and not refused:
                    assert status in (204, 404)
                else:
                    assert (status == 403) == refused, (path, has, seen, status)
                    assert status < 500
                    assert status != 422
                tried += 1
    assert tried == 9 * sum(path not in OPEN for _, path, _, _ in ROUTES)


def test_of_two_tokens_added_at_once_both_are_kept(tmp_path, monkeypatch):
    file = TokenFile(tmp_path / "tokens.json")
    second = Thread(target=file.add, args=("second", "read"))

    def write(tokens, whole=file._write):
        if not second.ident:
            second.start()
            second.join(0.05)  # expires
        whole(tokens)

    monkeypatch.setattr(file, "_write", write)
    file.add("first", "read")
    second.join(60)
    assert [token.caller.name for token in file.read()] == ["first", "second"]


async def test_a_caller_sees_no_jobs_and_collections_but_its_own(changing, tmp_path):
    file = TokenFile(tmp_path / "tokens.json")
    own, other = file.add("own", "admin", (COLLECTION,)), file.add("other", "admin", ("elsewhere",))
    job = await changing.collection(COLLECTION).jobs.submit("optimize")
    async with in_process(changing, token_file=file.path) as served:
        for secret, sees in ((own, True), (other, False)):
            headers = {"Authorization": f"Bearer {secret}"}

            async def get(path, headers=headers):
                return await served.http.get(path, headers=headers)

            names = [one["name"] for one in (await get("/v1/collections")).json()["collections"]]
            assert names == ([COLLECTION] if sees else [])
            jobs = [one["id"] for one in (await get("/v1/jobs")).json()["jobs"]]
            assert jobs == ([job.id] if sees else [])
            assert (await get(f"/v1/jobs/{job.id}")).status_code == (200 if sees else 404)
            path = f"/v1/jobs/{job.id}/cancel"
            assert (await served.http.post(path, headers=headers)).status_code == (200 if sees else 404)


@pytest.mark.slow
async def test_a_job_needs_the_rights_of_what_it_does(changing, tmp_path):
    arguments = {
        "index": {"paths": [str(tmp_path)]},
        "sync": {"paths": [str(tmp_path)]},
        "add": {"documents": [{"content": "x"}]},
        "reembed": {"model": "none"},
    }
    for rights in ORDER:
        async with in_process(changing, rights=rights, allow=[tmp_path]) as served:
            for kind, needed in OF_JOBS.items():
                answer = await served.post("/v1/jobs", {"kind": kind, "arguments": arguments.get(kind, {})})
                may = ORDER.index(rights) >= ORDER.index(needed)
                assert answer.status_code == (202 if may else 403), (kind, rights)


async def test_a_job_of_a_kind_that_is_not_known_here_needs_all_rights(changing, database_url):
    job = await changing.collection(COLLECTION).jobs.submit("optimize")
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE semlex.job SET kind = 'of a newer semlex'")
    for rights in ORDER:
        async with in_process(changing, rights=rights) as served:
            for action in ("cancel", "retry"):
                answer = await served.post(f"/v1/jobs/{job.id}/{action}", {})
                assert answer.status_code == (200 if rights == ORDER[-1] else 403)


HOSTS = {
    "localhost": True, "localhost:80": True, "127.0.0.1": True, "127.0.0.1:9": True, "[::1]": True, "[::1]:80": True,
    "LOCALHOST": True, "search.example.org": True, "0:0:0:0:0:0:0:1": False, "evil.example.org": False, "": False,
    "localhost.evil.org": False, "127.0.0.1.evil.org": False, "localhost:80:80": False, "localhost:": False,
    "localhost:abc": False, "[::1": False, "xn--localhost-": False, "l\u043ecalhost": False, "0.0.0.0": False,  # noqa: S104
    "127.1": False, "2130706433": False, "user@localhost": False, "localhost/": False, "localhost, evil": False,
}  # fmt: skip
ORIGINS = {
    None: True, "https://pages.example.org": True, "null": False, "http://evil.example.org": False,
    "http://localhost:3000": False, "http://127.0.0.1:8321": False, "http://[::1]:8321": False,
    "https://pages.example.org.evil.org": False, "http://pages.example.org": False,
    "https://pages.example.org:8443": False,
    "": False, "file://": False, "http://localhost@evil.org": False, "http://localhost/": False,
    "http://localhost.evil.org": False, "chrome-extension://abc": False, "http://l\u043ecalhost": False,
}  # fmt: skip
# The pages of this server, by the header Host; TLS is a proxy's, which a further name says.
OWN = {
    "localhost": {"http://localhost"}, "LOCALHOST:80": {"http://localhost"},
    "localhost:8321": {"http://localhost:8321"}, "127.0.0.1:8321": {"http://127.0.0.1:8321"},
    "[::1]:8321": {"http://[::1]:8321"}, "127.0.0.1:443": {"http://127.0.0.1:443"},
    "search.example.org": {"http://search.example.org", "https://search.example.org"},
    "search.example.org:443": {"http://search.example.org:443", "https://search.example.org"},
    "search.example.org:8443": {"http://search.example.org:8443", "https://search.example.org:8443"},
}  # fmt: skip


def test_hosts_and_origins_are_those_that_were_named():
    known = Addresses("127.0.0.1", ["search.example.org"], ["https://pages.example.org"])
    assert {host: known.knows_host([host.encode()]) for host in HOSTS} == HOSTS
    found = {one: known.knows_origin([] if one is None else [one.encode()], [b"localhost:8321"]) for one in ORIGINS}
    assert found == ORIGINS
    for host, origins in OWN.items():
        assert known.knows_host([host.encode()])
        for one in set().union(*OWN.values()):
            assert known.knows_origin([one.encode()], [host.encode()]) == (one in origins), (host, one)
    assert not known.knows_host([])
    assert not known.knows_host([b"localhost", b"localhost"])
    assert not known.knows_origin([b"http://localhost"] * 2, [b"localhost"])


@pytest.mark.parametrize(("host", "own"), [("0.0.0.0", None), ("::", None), ("192.0.2.1", "192.0.2.1")])  # noqa: S104
def test_names_of_loopback_are_always_known(host, own):
    known = Addresses(host)
    for name in ("localhost:8321", "127.0.0.1:8321", "[::1]:8321"):
        assert known.knows_host([name.encode()])
    assert known.knows_host([b"192.0.2.1"]) == (own is not None)
    assert not known.knows_host([host.encode()]) or own is not None
    assert not known.knows_host([b"evil.example.org"])
    assert Addresses(host, ["192.0.2.1"]).knows_host([b"192.0.2.1:8321"])


@pytest.mark.parametrize(("host", "every"), [("0.0.0.0", True), ("127.0.0.1", False)])  # noqa: S104
def test_a_server_on_every_address_is_shown_as_such(host, *, every):
    with closing(bound_socket(host, 0)) as listening:
        shown = places(listening)
        assert shown.startswith(address_to_ask(listening))
        assert ("every address" in shown) is every


async def test_hosts_origins_and_tokens_in_every_combination(filled, tmp_path):
    file = TokenFile(tmp_path / "tokens.json")
    good = f"Bearer {file.add('ann', 'read')}"
    tokens = {good: True, None: False, "Bearer": False, "Bearer x": False, good.replace("Bearer", "Basic"): False}
    async with in_process(
        filled, token_file=file.path, rate=0, hosts=["search.example.org"], origins=["https://pages.example.org"]
    ) as served:
        # Each host, origin and token beside good and bad ones of the others.
        hosts = {name: HOSTS[name] for name in ("localhost", "evil.example.org")}
        origins = {name: ORIGINS[name] for name in (None, "null")}
        for (host, host_good), (origin, origin_good), (token, token_good) in (
            *product(HOSTS.items(), origins.items(), tokens.items()),
            *product(hosts.items(), ORIGINS.items(), tokens.items()),
        ):
            headers = [(b"host", host.encode())]
            headers += [] if origin is None else [(b"origin", origin.encode())]
            headers += [] if token is None else [(b"authorization", token.encode())]
            status = await _status(served.app, headers)
            wanted = 421 if not host_good else 403 if not origin_good else 200 if token_good else 401
            assert status == wanted, (host, origin, token)
        assert served.state.metrics.searches == {}


async def test_probes_ask_by_any_address(filled):
    async with in_process(filled) as served:
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 421), ("/", 421)):
            answer = await served.http.get(path, headers={"Host": "10.1.2.3:8321"})
            assert answer.status_code == status, path
        evil = {"Host": "10.1.2.3:8321", "Origin": "https://evil.example.org"}
        assert (await served.http.get("/readyz", headers=evil)).status_code == 403


async def _status(app, headers):
    """The status of GET /openapi.json with exactly these headers."""
    found = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/openapi.json", "raw_path": b"/openapi.json", "query_string": b"", "root_path": "",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
    }  # fmt: skip

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            found.append(message["status"])

    await app(scope, receive, send)
    return found[0]


def test_a_token_is_shown_once_and_kept_as_a_hash(tmp_path):
    file = TokenFile(tmp_path / "deep" / "tokens.json")
    assert file.read() == ()
    secret = file.add("ann", "write", ("handbook",))
    content = file.path.read_text()
    assert secret not in content
    assert secret.removeprefix("semlex_") not in content
    assert file.path.stat().st_mode & 0o077 == 0
    assert caller_of(f"Bearer {secret}".encode(), file.read()) == Caller("ann", "write", frozenset({"handbook"}))
    with pytest.raises(ConfigurationError, match="already"):
        file.add("ann", "read")
    with pytest.raises(ConfigurationError, match="known tokens: ann"):
        file.remove("bob")
    file.remove("ann")
    assert file.read() == ()


def test_a_token_is_known_until_it_expires(tmp_path, monkeypatch):
    file, now = TokenFile(tmp_path / "tokens.json"), utc_now()
    soon = file.add("soon", "read", expires=now + timedelta(hours=1))
    never = file.add("never", "read")

    def known(secret):
        return caller_of(f"Bearer {secret}".encode(), file.read()) is not None

    assert known(soon)
    assert known(never)
    monkeypatch.setattr(tokens, "utc_now", lambda: now + timedelta(hours=1))
    assert not known(soon)
    assert known(never)
    with pytest.raises(ConfigurationError, match="must lie in the future"):
        file.add("late", "read", expires=now)


SHA256 = "0" * 64


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tokens": 3}', '{"tokens": {"a": {}}}', "[" * 100_000,
    '{"tokens": {"a": {"rights": "root", "collections": null, "sha256": "00"}}}',
    f'{{"tokens": {{"a": {{"rights": "read", "collections": null, "sha256": "{SHA256}", "expires": "2030-01-01"}}}}}}',
])  # fmt: skip
def test_a_damaged_file_of_tokens_is_refused(content, tmp_path):
    (tmp_path / "tokens.json").write_text(content)
    with pytest.raises(ConfigurationError, match="token file"):
        TokenFile(tmp_path / "tokens.json").read()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])  # noqa: S104
def test_off_loopback_tokens_are_compulsory(host):
    with pytest.raises(ConfigurationError, match="token"):
        ServeOptions(host=host)


async def test_changed_tokens_count_and_damaged_ones_do_not(filled, tmp_path):
    file = TokenFile(tmp_path / "tokens.json")
    ann = file.add("ann", "read")
    async with in_process(filled, token_file=file.path) as served:

        async def status(secret):
            found = await served.http.get("/v1/collections", headers={"Authorization": f"Bearer {secret}"})
            return found.status_code

        assert await status(ann) == 200
        bob = file.add("bob", "read")
        file.remove("ann")
        assert (await status(ann), await status(bob)) == (401, 200)
        file.path.write_text("{")
        assert await status(bob) == 200
        assert served.state.metrics.reloads == {"refused": 1}
