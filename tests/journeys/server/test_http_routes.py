"""Every operation is a route with its rights, and answers what the library answers."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from semlex import Client
from semlex.options.declare import arguments_of, declared
from semlex.retriever.operations import OPERATIONS
from semlex.retriever.options import FileOptions
from semlex.server.app import create_app
from semlex.server.options import ServeOptions
from semlex.server.request_context import OPERATION, RIGHTS
from semlex.testing import HashEmbedder
from tests.support.http_server import COLLECTION, FixedSettings, in_process, on_a_port, settings_for
from tests.support.waiting import eventually

WITHOUT_ROUTE = {
    "sync": "a job of the kind sync",
    "import table": "reads tables of any database that the server's machine reaches",
    "followed tables": "status lists them",
    "sync tables": "a worker's",
    **dict.fromkeys(("follow table", "change table", "stop table", "trigger SQL"), "a definition may hold SQL"),
    "load vectors": "reads files of the server's machine for as long as it takes",
    "move source": "says where folders of the server's machine are",
    "enrich": "sends texts to a language model, for as long as it takes",
    "checkup": "takes minutes",
    "clear queries": "the command line's",
    "diagnose": "speaks of the server's machine",
    "add field": "changes tables",
    "remove field": "changes tables",
    "optimize": "a job of the kind optimize",
    "reindex": "changes tables",
    "rechunk": "a job of the kind rechunk",
    "create index": "changes tables",
    "dump": "writes to the server's machine",
    "restore": "reads from the server's machine",
    "migrate": "changes tables",
    "embed": "a job of the kind embed",
    "reembed": "a job of the kind reembed",
    "roll back embeddings": "changes tables",
    "drop embeddings": "changes tables",
}


@cache
def described():
    return create_app(ServeOptions(), FixedSettings(settings_for())).openapi()


def operations_of(description):
    return {
        one[OPERATION]: one for place in description["paths"].values() for one in place.values() if one.get(OPERATION)
    }


def test_every_operation_is_a_route_or_says_why_not():
    routes = operations_of(described())
    assert OPERATIONS.keys() - routes.keys() == WITHOUT_ROUTE.keys()
    assert {name: one.rights for name, one in OPERATIONS.items() if name in routes} == {
        name: one[RIGHTS] for name, one in routes.items()
    }


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS.values() if one.name not in WITHOUT_ROUTE], ids=lambda one: one.name
)
def test_a_route_takes_the_arguments_of_its_operation(operation):
    description = described()
    route = operations_of(description)[operation.name]
    given = {one["name"] for one in route.get("parameters", [])}
    if "requestBody" in route:
        reference = route["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        given |= description["components"]["schemas"][reference]["properties"].keys()
    known = arguments_of(operation.method).values()
    arguments = {one.name for each in known for one in (each.parts.values() or [each]) if one.option.offered}
    # How files are cut and read is said by whoever runs the server.
    left_out = declared(FileOptions).keys() | {"enrichment"} if operation.name == "index" else set()
    assert arguments - left_out <= given


@pytest.mark.slow
async def test_a_search_is_that_of_the_library(filled):
    own = (await filled.collection(COLLECTION).search("rotated key", 3, {"lang": "en"}, explain=True)).to_dict()
    async with in_process(filled) as served:
        for filters in ({"lang": "en"}, 'lang == "en"'):
            body = {"query": "rotated key", "top_k": 3, "filters": filters, "explain": True}
            for path in ("/v1/search", "/search"):
                answer = await served.post(path, body)
                assert answer.status_code == 200
                found = answer.json()
                assert {**found, "timings": 0, "legs": 0} == {**_as_json(own), "timings": 0, "legs": 0} | {
                    "query_cached": found["query_cached"]
                }


def _as_json(value):
    return json.loads(json.dumps(value))


@pytest.mark.slow
async def test_candidates_can_be_ordered_by_any_weight(filled):
    """The page's own sum, from the two scores, gives the library's order and scores."""
    async with in_process(filled) as served:
        found = (await served.post("/v1/candidates", {"query": "rotated key vault"})).json()
    assert len(found["hits"]) == 5
    about = found["explanation"]

    def fused(hit, weight):
        z = (hit["vector_score"] - about["similarity_mean"]) / about["similarity_deviation"]
        return (1 - weight) * hit["keyword_score"] / about["greatest_keyword_score"] + weight * z / 6

    for weight in (0.0, 0.3, 1.0):
        own = await filled.collection(COLLECTION).search("rotated key vault", 5, weights={"vector": weight})
        scores = {hit["id"]: fused(hit, weight) for hit in found["hits"]}
        assert {hit.id: hit.fused_score for hit in own} == pytest.approx(scores)


async def test_pages_are_one_list(filled):
    async with in_process(filled) as served:
        page = (await served.post("/v1/search", {"query": "key vault fruit", "top_k": 2, "max_results": 5})).json()
        ids = [hit["id"] for hit in page["hits"]]
        while page["next_cursor"] is not None:
            page = (await served.post("/v1/search/page", {"cursor": page["next_cursor"]})).json()
            ids += [hit["id"] for hit in page["hits"]]
        assert (await served.post("/v1/search/page", {"cursor": "torn"})).status_code == 404
        search = {"query": "key vault fruit", "top_k": 2, "max_results": 5, "filters": "exists lang"}
        cursor = (await served.post("/v1/search", search)).json()["next_cursor"]
        page = {"cursor": cursor, "filters": "exists lang"}
        assert (await served.post("/v1/search/page", page)).status_code == 200
        refused = await served.post("/v1/search/page", page | {"filters": {"tenant": 3}})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "filters")
    assert sorted(ids) == [f"d{number}" for number in range(5)]


async def test_an_answer_is_streamed_sentence_by_sentence(filled):
    body = {"question": "how often is a key rotated?", "stream": True}
    async with on_a_port(filled) as served:
        whole = (await served.post("/query", {**body, "stream": False})).json()
        answer = await served.post("/v1/answer", body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in answer.text.strip().split("\n\n")]
    names = [lines[0].removeprefix("event: ") for lines in events]
    last = json.loads(events[-1][1].removeprefix("data: "))
    assert names == ["sentence"] * (len(names) - 1) + ["answer"]
    assert (last["text"], last["sentences"]) == (whole["text"], whole["sentences"])
    assert [citation["verdict"] for citation in last["sentences"][0]["citations"]] == ["exact"]


async def test_documents_come_and_go(changing):
    async with in_process(changing, rights="admin") as served:
        body = {"collection": "fresh", "documents": [{"content": "One.", "id": "one"}, {"content": "Two."}]}
        assert (await served.post("/v1/documents", body)).status_code == 404
        answer = await served.post("/v1/documents", {**body, "create": True})
        assert answer.status_code == 201
        assert answer.json()["ids"][0] == "one"
        place = {"params": {"collection": "fresh"}}
        assert (await served.http.get("/v1/chunks/one", **place)).json()["content"] == "One."
        assert len((await served.http.get("/v1/chunks", **place)).json()["chunks"]) == 2
        gone = await served.http.request("DELETE", "/v1/documents", json={"collection": "fresh", "ids": ["one"]})
        assert gone.json() == {"chunks": 1, "documents": 1, "dry_run": False}
        assert (await served.http.get("/v1/chunks/one", **place)).status_code == 404
        assert (await served.http.delete("/v1/collections/fresh")).status_code == 204
        assert (await served.http.get("/v1/collections/fresh")).status_code == 404


@pytest.mark.slow
async def test_a_job_is_done_by_the_server_itself(database_url, tmp_path):
    (tmp_path / "keys.md").write_text("# Keys\n\nA key is rotated every 90 days.\n", encoding="utf-8")
    async with in_process(url=database_url, rights="write", allow=[tmp_path], jobs=1) as served:
        body = {"paths": [str(tmp_path)], "create": True}
        place = f"/v1/jobs/{(await served.post('/index', body)).json()['id']}"

        async def ended():
            found = (await served.http.get(place)).json()
            return None if found["state"] in ("queued", "running") else found

        job = await eventually(ended)
        assert (job["state"], job["result"]["added"]) == ("done", 1)
        hits = (await served.post("/v1/search", {"query": "rotated"})).json()["hits"]
        assert [hit["source_document"] for hit in hits] == ["keys.md"]
        assert (await served.post(f"{place}/retry", {})).status_code == 409
        outside = await served.post("/index", {"paths": [str(tmp_path / ".." / "elsewhere"), "/"]})
        assert outside.status_code == 403
        assert (await served.post("/v1/jobs", {"kind": "rechunk"})).status_code == 403


async def test_the_process_says_how_it_is(filled):
    async with in_process(filled) as served:
        assert (await served.http.get("/healthz")).json() == {"status": "ok"}
        ready = await served.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert ready.json()["checks"].keys() == {"database", "extension", "settings", "models"}
        for path in ("/healthz", "/readyz", "/"):  # as balancers ask
            assert (await served.http.head(path)).status_code == 200
        await served.post("/v1/search", {"query": "key"})
        figures = (await served.http.get("/metrics")).text
        assert 'semlex_requests_total{method="POST",route="/v1/search",status="200"} 1' in figures
        assert 'semlex_searches_total{operation="search"} 1' in figures
        assert 'semlex_request_seconds_count{route="/v1/search"} 1' in figures
        assert 'semlex_jobs{state="queued"} 0' in figures
        names = re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", figures, re.MULTILINE)
        assert re.findall(r"^# HELP (\S+) .+\.$", figures, re.MULTILINE) == names
        assert len(set(names)) == len(names)
        assert {"semlex_pool_size", "semlex_build_info", "process_cpu_seconds_total", "process_open_fds"} <= set(names)
        values = [line for line in figures.splitlines() if not line.startswith("#")]
        assert all(re.fullmatch(r"[a-z_]+(\{[^{}]+\})? [\d.e+]+", line) for line in values), values


async def test_a_name_tells_nothing_of_other_files(changing, tmp_path, monkeypatch):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("Keys are cut on Fridays.")
    for name in (".cellar.md", "cellar.log"):
        (docs / name).write_text("Not read.")
    (docs / "cellar-link.md").symlink_to("keys.md")
    await changing.collection(COLLECTION).index(docs)
    (tmp_path / "cellar.md").write_text("Of somebody else.")
    monkeypatch.chdir(tmp_path)
    async with in_process(changing) as served:
        (docs / "cellar-new.md").write_text("Later.")
        below = [
            f"{docs}/{{}}-new.md",
            f"{docs}/{{}}-link.md",
            f"{docs}/.{{}}.md",
            "docs: {}.log",
            ".{}.md",
            "{}-new.md",
        ]
        for name in ("{}.md", f"{tmp_path}/{{}}.md", "../{}.md", "docs: ../{}.md", *below):
            told = []
            for stem in ("cellar", "attics"):  # a file, and nothing
                body = {"document": name.format(stem), "question": "key"}
                answer = (await served.post("/v1/why", body)).json()
                told.append(json.dumps(answer["reasons"]).replace(stem, "X"))
            assert told[0] == told[1], name
            assert str(tmp_path) not in told[0].replace(name.replace("{}", "X"), "")
        found = (await served.post("/v1/why", {"document": "keys.md", "question": "Fridays"})).json()
        assert found["document"].endswith("keys.md")


async def test_a_collection_that_was_dropped_and_made_again(changing, database_url):
    posted = {"collection": COLLECTION, "documents": [{"id": "h", "content": "A key of the new one."}]}
    async with in_process(changing, rights="admin") as served, Client(database_url, HashEmbedder()) as other:
        for _ in range(2):
            assert (await served.post("/v1/search", {"query": "key"})).status_code == 200
            await other.drop(COLLECTION)
            for _ in range(2):
                assert (await served.post("/v1/search", {"query": "key"})).status_code == 404
            await other.collection(COLLECTION).add_texts(["A key of another one."], ids=["other"])
            hits = (await served.post("/v1/search", {"query": "key"})).json()["hits"]
            assert [hit["id"] for hit in hits] == ["other"]
        await other.drop(COLLECTION)
        await other.collection(COLLECTION).add_texts(["A key of another one."], ids=["other"])
        assert [(await served.post("/v1/documents", posted)).status_code for _ in range(3)] == [404, 201, 201]
