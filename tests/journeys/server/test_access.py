"""Who may do what: every route with every right and collection; hosts, origins, pages of other sites, and tokens."""

from contextlib import closing
from datetime import timedelta
from itertools import product
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.retriever.operations import OPERATIONS
from semlex.server.addresses import Addresses, address_to_ask, bound_socket, origin_of, places
from semlex.server.options import ServeOptions
from semlex.server.request_context import OPERATION, RIGHTS
from semlex.server.routes.jobs import OF_JOBS
from semlex.server.tokens import ORDER, Caller, TokenFile, caller_of
from semlex.types.documents import utc_now
from tests.support.databases import execute
from tests.support.http_server import COLLECTION, app_of, bearer, in_process

JOB = "00000000-0000-4000-8000-000000000000"
# What a valid request of each operation is made with, beside the collection.
BODIES = {
    "search": {"query": "key"}, "candidates": {"query": "key"}, "search page": {"cursor": "torn"},
    "search many": {"queries": ["key"]}, "why": {"question": "key", "document": "d0"}, "facets": {"fields": ["year"]},
    "context": {"question": "key"}, "answer": {"question": "key"}, "delete": {"ids": ["nothing"]},
    "index": {"paths": ["/nowhere"]}, "judge": {"question": "key", "judgements": {"d0": 1}},
    "add documents": {"documents": [{"content": "One.", "id": "d0"}]},
    "submit job": {"kind": "add", "arguments": {"documents": [{"content": "x", "id": "d0"}]}},
}  # fmt: skip
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


def routes_of(listed):
    """Method, path, operation and rights of every route, aliases included."""
    for route in listed:
        if hasattr(route, "openapi_extra"):
            extra = route.openapi_extra or {}
            about = extra.get(OPERATION, ""), extra.get(RIGHTS, "")
            yield from ((method, route.path, *about) for method in route.methods)
        else:
            yield from routes_of(getattr(getattr(route, "original_router", route), "routes", []))


ROUTES = [*routes_of(app_of().routes)]


@pytest.mark.slow
async def test_no_route_does_more_than_the_rights_and_collections_of_its_caller(changing, tokens):  # noqa: C901
    assert len(ROUTES) >= 35
    assert {path for _, path, _, rights in ROUTES if not rights} == OPEN
    assert {"/search", "/index", "/query", "/v1/search"} <= {path for _, path, _, _ in ROUTES}
    secrets = {}
    for rights, (seen, collections) in product(ORDER, {"all": (), "own": (COLLECTION,), "other": ("other",)}.items()):
        secrets[rights, seen] = tokens.add(f"{rights}-{seen}", rights, collections)
    needed = {name: one.rights for name, one in OPERATIONS.items()} | {"judge": "write"}  # the page's own
    async with in_process(changing, token_file=tokens.path, rate=0) as served:

        async def ask(method, path, operation, secret):
            takes_collection = method == "GET" and operation and "{name}" not in path and operation not in OF_ALL
            for name, value in PLACES.items():
                path = path.replace(name, value)
            sent = {} if secret is None else {"headers": bearer(secret)}
            if method in ("POST", "PUT") or operation == "delete":
                sent["json"] = OTHER_BODIES.get(path) or {**BODIES.get(operation, {}), "collection": COLLECTION}
            if takes_collection:
                sent["params"] = {**PARAMETERS.get(operation, {}), "collection": COLLECTION}
            return (await served.http.request(method, path, **sent)).status_code

        for method, path, operation, rights in sorted(ROUTES, key=lambda route: route[2] == "drop"):
            if path in OPEN:
                assert await ask(method, path, operation, None) == 200
                continue
            assert rights == needed.get(operation, "read")
            for wrong in (None, "", "semlex_" + "A" * 43, secrets["admin", "all"][:-1]):
                assert await ask(method, path, operation, wrong) == 401, (path, wrong)
            for (has, seen), secret in secrets.items():
                status = await ask(method, path, operation, secret)
                refused = ORDER.index(has) < ORDER.index(rights) or (operation not in OF_ALL | {""} and seen == "other")
                if operation == "index":
                    assert status == 403  # its path is in no folder that may be read
                elif operation == "drop" and not refused:
                    assert status in (204, 404)
                else:
                    assert (status == 403) == refused, (path, has, seen, status)
                    assert status < 500
                    assert status != 422


def test_of_two_tokens_added_at_once_both_are_kept(tokens, monkeypatch):
    second = Thread(target=tokens.add, args=("second", "read"))

    def write(changed, whole=tokens._write):
        if not second.ident:
            second.start()
            second.join(0.05)  # expires
        whole(changed)

    monkeypatch.setattr(tokens, "_write", write)
    tokens.add("first", "read")
    second.join(60)
    assert [token.caller.name for token in tokens.read()] == ["first", "second"]


@pytest.mark.slow
async def test_callers_see_their_own_jobs_and_need_the_rights_of_a_job(changing, database_url, tmp_path, tokens):
    own, other = tokens.add("own", "admin", (COLLECTION,)), tokens.add("other", "admin", ("elsewhere",))
    job = await changing.collection(COLLECTION).jobs.submit("optimize")
    async with in_process(changing, token_file=tokens.path) as served:
        for headers, sees in ((bearer(own), True), (bearer(other), False)):
            listed = (await served.http.get("/v1/collections", headers=headers)).json()["collections"]
            assert [one["name"] for one in listed] == ([COLLECTION] if sees else [])
            jobs = (await served.http.get("/v1/jobs", headers=headers)).json()["jobs"]
            assert [one["id"] for one in jobs] == ([job.id] if sees else [])
            for method, path in (("GET", f"/v1/jobs/{job.id}"), ("POST", f"/v1/jobs/{job.id}/cancel")):
                assert (await served.http.request(method, path, headers=headers)).status_code == (200 if sees else 404)
    paths = {"paths": [str(tmp_path)]}
    arguments = {"index": paths, "sync": paths, "add": {"documents": [{"content": "x"}]}, "reembed": {"model": "none"}}
    for rights in ORDER:
        async with in_process(changing, rights=rights, allow=[tmp_path]) as served:
            for kind, needed in OF_JOBS.items():
                answer = await served.post("/v1/jobs", {"kind": kind, "arguments": arguments.get(kind, {})})
                wanted = 202 if ORDER.index(rights) >= ORDER.index(needed) else 403
                assert answer.status_code == wanted, (kind, rights)
    execute(database_url, "UPDATE semlex.job SET kind = 'of a newer semlex'")
    for rights in ORDER:
        async with in_process(changing, rights=rights) as served:
            for action in ("cancel", "retry"):
                answer = await served.post(f"/v1/jobs/{job.id}/{action}", {})
                assert answer.status_code == (200 if rights == ORDER[-1] else 403)


PAGES = "https://pages.example.org"
HOSTS = dict.fromkeys((
    "localhost", "localhost:80", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:80", "LOCALHOST", "search.example.org",
), True) | dict.fromkeys((
    "0:0:0:0:0:0:0:1", "evil.example.org", "", "localhost.evil.org", "127.0.0.1.evil.org", "localhost:80:80",
    "localhost:", "localhost:abc", "[::1", "xn--localhost-", "l\u043ecalhost", "0.0.0.0", "127.1", "2130706433",  # noqa: S104
    "user@localhost", "localhost/", "localhost, evil",
), False)  # fmt: skip
ORIGINS = {None: True, PAGES: True} | dict.fromkeys((
    "null", "http://evil.example.org", "http://localhost:3000", "http://127.0.0.1:8321", "http://[::1]:8321",
    f"{PAGES}.evil.org", "http://pages.example.org", f"{PAGES}:8443", "", "file://", "http://localhost@evil.org",
    "http://localhost/", "http://localhost.evil.org", "chrome-extension://abc", "http://l\u043ecalhost",
), False)  # fmt: skip
# The pages of this server, by the header Host; TLS is a proxy's, which a further name says.
OWN = {
    "localhost": {"http://localhost"}, "LOCALHOST:80": {"http://localhost"},
    "localhost:8321": {"http://localhost:8321"}, "127.0.0.1:8321": {"http://127.0.0.1:8321"},
    "[::1]:8321": {"http://[::1]:8321"}, "127.0.0.1:443": {"http://127.0.0.1:443"},
    "search.example.org": {"http://search.example.org", "https://search.example.org"},
    "search.example.org:443": {"http://search.example.org:443", "https://search.example.org"},
    "search.example.org:8443": {"http://search.example.org:8443", "https://search.example.org:8443"},
}  # fmt: skip
WRITTEN = {
    **dict.fromkeys(("https://a.example/", "HTTPS://A.Example", "https://a.example:443"), "https://a.example"),
    "http://a.example:80/": "http://a.example", "https://a.example:8443": "https://a.example:8443",
    "http://[0:0:0:0:0:0:0:1]:3000": "http://[::1]:3000", "http://localhost:3000": "http://localhost:3000",
}  # fmt: skip
NO_ORIGINS = ["", "*", "null", "a.example", "ftp://a.example", "https://", "https://a.example/x", "https://*.example",
    "https://a.example?x", "https://a.example#x", "https://u@a.example", "https://a.example:x", "https://a b",
    "https://\u0430.example", "https://a.example:99999", "https://[::1"]  # fmt: skip


def test_own_pages_are_known_by_the_host_that_is_asked():
    known = Addresses("127.0.0.1", ["search.example.org"], [PAGES])
    for host, origins in OWN.items():
        assert known.knows_host([host.encode()])
        for one in set().union(*OWN.values()):
            assert known.knows_origin([one.encode()], [host.encode()]) == (one in origins), (host, one)
    assert not known.knows_host([])
    assert not known.knows_host([b"localhost", b"localhost"])
    assert not known.knows_origin([b"http://localhost"] * 2, [b"localhost"])


def test_loopback_names_are_known_on_every_address_and_other_addresses_need_tokens():
    for host in ("0.0.0.0", "::", "192.0.2.1"):  # noqa: S104
        known = Addresses(host)
        assert all(known.knows_host([name.encode()]) for name in ("localhost:8321", "127.0.0.1:8321", "[::1]:8321"))
        assert known.knows_host([b"192.0.2.1"]) == known.knows_host([host.encode()]) == (host == "192.0.2.1")
        assert not known.knows_host([b"evil.example.org"])
        assert Addresses(host, ["192.0.2.1"]).knows_host([b"192.0.2.1:8321"])
    for host, every in (("0.0.0.0", True), ("127.0.0.1", False)):  # noqa: S104
        with closing(bound_socket(host, 0)) as listening:
            shown = places(listening)
            assert shown.startswith(address_to_ask(listening))
            assert ("every address" in shown) is every
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):  # noqa: S104
        with pytest.raises(ConfigurationError, match="token"):
            ServeOptions(host=host)


async def test_hosts_origins_and_tokens_in_every_combination(filled, tokens):
    good = f"Bearer {tokens.add('ann', 'read')}"
    sent = {good: True, None: False, "Bearer": False, "Bearer x": False, good.replace("Bearer", "Basic"): False}
    named = {"hosts": ["search.example.org"], "origins": [PAGES]}
    async with in_process(filled, token_file=tokens.path, rate=0, **named) as served:
        # Each host, origin and token beside good and bad ones of the others.
        hosts = {name: HOSTS[name] for name in ("localhost", "evil.example.org")}
        origins = {name: ORIGINS[name] for name in (None, "null")}
        for (host, host_good), (origin, origin_good), (token, token_good) in (
            *product(HOSTS.items(), origins.items(), sent.items()),
            *product(hosts.items(), ORIGINS.items(), sent.items()),
        ):
            given = (("Host", host), ("Origin", origin), ("Authorization", token))
            headers = [(name, value.encode()) for name, value in given if value is not None]
            wanted = 421 if not host_good else 403 if not origin_good else 200 if token_good else 401
            answer = await served.http.get("/openapi.json", headers=headers)
            assert answer.status_code == wanted, (host, origin, token)
        assert served.state.metrics.searches == {}
        evil = {"Host": "10.1.2.3:8321", "Origin": "https://evil.example.org"}
        assert (await served.http.get("/readyz", headers=evil)).status_code == 403
    async with in_process(filled) as served:  # probes may name any host
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 421), ("/", 421)):
            assert (await served.http.get(path, headers={"Host": "10.1.2.3:8321"})).status_code == status, path


async def test_an_origin_may_be_written_in_any_way(filled):
    for written, origin in WRITTEN.items():
        assert ServeOptions(origins=[written]).origins == (origin,)
    for text in NO_ORIGINS:
        with pytest.raises(ConfigurationError, match="is not an origin"):
            ServeOptions(origins=[text])
    async with in_process(filled, origins=[*WRITTEN]) as served:
        for origin in set(WRITTEN.values()):
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            for method in ("OPTIONS", "POST"):
                answer = await served.http.request(method, "/v1/search", headers=headers, json={"query": "key"})
                assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)


@given(st.text(max_size=20), st.sampled_from(["http://", "https://", ""]))
def test_an_origin_is_written_in_one_way(text, scheme):
    written = origin_of(scheme + text)
    assert written is None or origin_of(written) == written == written.lower()


async def test_pages_that_were_named_ask_across_sites_and_read_refusals(filled, tokens):
    headers = bearer(tokens.add("ann", "read"))
    async with in_process(filled, token_file=tokens.path, origins=[PAGES], rate=1) as served:
        for token, status in (({}, 401), (headers, 200), (headers, 429)):
            answer = await served.post("/v1/search", {"query": "key"}, headers={"Origin": PAGES, **token})
            assert (answer.status_code, answer.headers.get_list("access-control-allow-origin")) == (status, [PAGES])
            assert "X-Request-ID" in answer.headers["access-control-expose-headers"]
            assert "Origin" in answer.headers["vary"]
        for method in ("POST", "OPTIONS"):
            asking = {"Origin": "https://evil.example.org", "Access-Control-Request-Method": "POST"}
            answer = await served.http.request(method, "/v1/search", headers=asking)
            assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)
        own = await served.post("/v1/search", {"query": "key"}, headers={"Origin": "http://localhost"})
        assert "access-control-allow-origin" not in own.headers
    async with in_process(filled, origins=[PAGES]) as served:
        headers = {"Origin": PAGES, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
        assert (await served.http.get("/v1/count", headers=headers)).status_code == 200
        assert (await served.post("/v1/search", {"query": "key"}, headers=headers)).status_code == 200
        del headers["Origin"]
        assert (await served.http.get("/v1/count", headers=headers)).status_code == 403


async def test_what_pages_of_others_embed_is_refused(served):
    sites = {None: False, "none": False, "same-origin": False, "same-site": True, "cross-site": True}
    modes = (None, ("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe"), ("navigate", "document"))
    paths = ("/", "/page/main.js", "/healthz", "/v1/count", "/v1/fields")
    for (site, is_foreign), doing, path in product(sites.items(), modes, paths):
        headers = {} if site is None else {"Sec-Fetch-Site": site}
        if doing is not None:
            headers |= {"Sec-Fetch-Mode": doing[0], "Sec-Fetch-Dest": doing[1]}
        answer = await served.http.get(path, headers=headers)
        is_link = doing == ("navigate", "document") and path in paths[:2]
        assert answer.status_code == (403 if is_foreign and not is_link else 200), (site, doing, path)
        assert answer.headers.get_list("cross-origin-resource-policy") == ["same-origin"]
        assert answer.headers.get_list("x-frame-options") == ["DENY"]
    assert served.state.metrics.refused["unknown-origin"] > 0


async def test_pages_of_other_ports_change_nothing(changing):
    neighbours = ("http://localhost:9999", "https://localhost", "http://127.0.0.1", "http://[::1]")
    job = await changing.collection(COLLECTION).jobs.submit("optimize")
    async with in_process(changing, rights="admin") as served:
        for origin, site in product((*neighbours, "http://localhost", None), ("same-site", "cross-site")):
            headers = {"Sec-Fetch-Site": site, "Content-Type": "text/plain"} | ({"Origin": origin} if origin else {})
            answer = await served.http.post(f"/v1/jobs/{job.id}/cancel", headers=headers)
            assert answer.status_code == 403, (origin, site)
        for origin in neighbours:  # of a browser that does not say more
            answer = await served.http.post(f"/v1/jobs/{job.id}/cancel", headers={"Origin": origin})
            assert (answer.status_code, "--origin" in answer.json()["detail"]) == (403, True)
        own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
        assert (await served.http.get(f"/v1/jobs/{job.id}", headers=own)).json()["state"] == "queued"
        assert (await served.http.post(f"/v1/jobs/{job.id}/cancel", headers=own)).status_code == 200


async def test_a_proxy_has_tls_under_the_name_that_was_given(filled):
    async with in_process(filled, hosts=["search.example.org"]) as served:
        headers = {"Host": "search.example.org", "Sec-Fetch-Site": "same-origin"}
        for origin, status in (("https://search.example.org", 200), ("https://search.example.org:8443", 403)):
            answer = await served.post("/v1/search", {"query": "key"}, headers=headers | {"Origin": origin})
            assert answer.status_code == status


def test_a_token_is_kept_as_a_hash_and_known_until_it_expires_or_is_removed(tmp_path, monkeypatch):
    file, now = TokenFile(tmp_path / "deep" / "tokens.json"), utc_now()
    assert file.read() == ()
    secret = file.add("ann", "write", ("handbook",))
    assert secret.removeprefix("semlex_") not in file.path.read_text()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert caller_of(f"Bearer {secret}".encode(), file.read()) == Caller("ann", "write", frozenset({"handbook"}))
    with pytest.raises(ConfigurationError, match="already"):
        file.add("ann", "read")
    with pytest.raises(ConfigurationError, match="known tokens: ann"):
        file.remove("bob")
    file.remove("ann")
    assert file.read() == ()
    secrets = file.add("soon", "read", expires=now + timedelta(hours=1)), file.add("never", "read")

    def known():
        return [caller_of(f"Bearer {secret}".encode(), file.read()) is not None for secret in secrets]

    assert known() == [True, True]
    monkeypatch.setattr("semlex.server.tokens.utc_now", lambda: now + timedelta(hours=1))
    assert known() == [False, True]
    with pytest.raises(ConfigurationError, match="must lie in the future"):
        file.add("late", "read", expires=now)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tokens": 3}', '{"tokens": {"a": {}}}', "[" * 100_000,
    '{"tokens": {"a": {"rights": "root", "collections": null, "sha256": "00"}}}',
    f'{{"tokens": {{"a": {{"rights": "read", "collections": null, "sha256": "{64 * "0"}", "expires": "20300101"}}}}}}',
])  # fmt: skip
def test_a_damaged_file_of_tokens_is_refused(content, tokens):
    tokens.path.write_text(content)
    with pytest.raises(ConfigurationError, match="token file"):
        tokens.read()


async def test_changed_tokens_count_and_damaged_ones_do_not(filled, tokens):
    ann = tokens.add("ann", "read")
    async with in_process(filled, token_file=tokens.path) as served:

        async def status(secret):
            return (await served.http.get("/v1/collections", headers=bearer(secret))).status_code

        assert await status(ann) == 200
        bob = tokens.add("bob", "read")
        tokens.remove("ann")
        assert (await status(ann), await status(bob)) == (401, 200)
        tokens.path.write_text("{")
        assert await status(bob) == 200
        assert served.state.metrics.reloads == {"refused": 1}
