"""Pages of other sites: what a browser asks for them is refused, or answered to those that were named."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.server.addresses import origin_of
from semlex.server.options import ServeOptions
from tests.support.http_server import COLLECTION, bearer, in_process

PAGES = "https://pages.example.org"
WRITTEN = {
    "https://a.example/": "https://a.example",
    "HTTPS://A.Example": "https://a.example",
    "https://a.example:443": "https://a.example",
    "http://a.example:80/": "http://a.example",
    "https://a.example:8443": "https://a.example:8443",
    "http://[0:0:0:0:0:0:0:1]:3000": "http://[::1]:3000",
    "http://localhost:3000": "http://localhost:3000",
}
NO_ORIGINS = ["", "*", "null", "a.example", "ftp://a.example", "https://", "https://a.example/x", "https://*.example",
    "https://a.example?x", "https://a.example#x", "https://u@a.example", "https://a.example:x", "https://a b",
    "https://\u0430.example", "https://a.example:99999", "https://[::1"]  # fmt: skip


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
            assert answer.status_code == status
            assert answer.headers.get_list("access-control-allow-origin") == [PAGES]
            assert "X-Request-ID" in answer.headers["access-control-expose-headers"]
            assert "Origin" in answer.headers["vary"]
        for method in ("POST", "OPTIONS"):
            asking = {"Origin": "https://evil.example.org", "Access-Control-Request-Method": "POST"}
            answer = await served.http.request(method, "/v1/search", headers=asking)
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers
        own = await served.post("/v1/search", {"query": "key"}, headers={"Origin": "http://localhost"})
        assert "access-control-allow-origin" not in own.headers
    async with in_process(filled, origins=[PAGES]) as served:
        headers = {"Origin": PAGES, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
        assert (await served.http.get("/v1/count", headers=headers)).status_code == 200
        assert (await served.post("/v1/search", {"query": "key"}, headers=headers)).status_code == 200
        del headers["Origin"]
        assert (await served.http.get("/v1/count", headers=headers)).status_code == 403


SITES = {None: False, "none": False, "same-origin": False, "same-site": True, "cross-site": True}
DOING = [None, ("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe"), ("navigate", "document")]
PATHS = ["/", "/page/main.js", "/healthz", "/v1/count", "/v1/fields"]


async def test_what_pages_of_others_embed_is_refused(served):
    for (site, is_foreign), doing, path in product(SITES.items(), DOING, PATHS):
        headers = {} if site is None else {"Sec-Fetch-Site": site}
        if doing is not None:
            headers |= {"Sec-Fetch-Mode": doing[0], "Sec-Fetch-Dest": doing[1]}
        answer = await served.http.get(path, headers=headers)
        is_link = doing == ("navigate", "document") and path in PATHS[:2]
        assert answer.status_code == (403 if is_foreign and not is_link else 200), (site, doing, path)
        assert answer.headers.get_list("cross-origin-resource-policy") == ["same-origin"]
        assert answer.headers.get_list("x-frame-options") == ["DENY"]
    assert served.state.metrics.refused["unknown-origin"] > 0


NEIGHBOURS = ["http://localhost:9999", "https://localhost", "http://127.0.0.1", "http://[::1]"]


async def test_pages_of_other_ports_change_nothing(changing):
    job = await changing.collection(COLLECTION).jobs.submit("optimize")
    async with in_process(changing, rights="admin") as served:
        for origin, site in product((*NEIGHBOURS, "http://localhost", None), ("same-site", "cross-site")):
            headers = {"Sec-Fetch-Site": site, "Content-Type": "text/plain"} | ({"Origin": origin} if origin else {})
            answer = await served.http.post(f"/v1/jobs/{job.id}/cancel", headers=headers)
            assert answer.status_code == 403, (origin, site)
        for origin in NEIGHBOURS:  # of a browser that does not say more
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
