"""Every operation is a route with its rights, and answers what the library answers, as its dictionaries have it."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semlex import Client
from semlex.options.declare import arguments_of, declared
from semlex.retriever.operations import OPERATIONS
from semlex.retriever.options import FileOptions
from semlex.server.request_context import OPERATION, RIGHTS, as_json, rows_as_json
from semlex.server.routes import ROUTERS
from semlex.testing import HashEmbedder
from semlex.types.queries import Route
from semlex.types.results import DocumentHits, HitMetadata, LegReport, SearchResult, SearchResults
from tests.support.folders import folder_with
from tests.support.http_server import COLLECTION, app_of, client_of, in_process, on_a_port
from tests.support.waiting import eventually

# Reason -> operations.
WITHOUT_ROUTE = {
    "a job of this kind": {"embed", "optimize", "rechunk", "reembed", "sync"},
    "changes tables": {"add field", "create index", "drop embeddings", "migrate", "reindex", "remove field"},
    "switches the model of all searches": {"roll back embeddings"},
    "a definition may hold SQL": {"follow table", "change table", "stop table", "trigger SQL"},
    "reads tables of any database that the server's machine reaches": {"import table"},
    "is about files of the server's machine": {"diagnose", "dump", "load vectors", "move source", "restore"},
    "takes minutes, or sends texts to a language model": {"checkup", "enrich"},
    "status lists them": {"followed tables"},
    "done by a worker or the command line": {"clear queries", "sync tables"},
}


def test_every_operation_is_a_route_with_its_arguments_or_says_why_not():
    description = app_of().openapi()
    places = description["paths"].values()
    routes = {one[OPERATION]: one for place in places for one in place.values() if one.get(OPERATION)}
    assert OPERATIONS.keys() - routes.keys() == set().union(*WITHOUT_ROUTE.values())
    assert {name: OPERATIONS[name].rights for name in routes} == {name: one[RIGHTS] for name, one in routes.items()}
    for name, route in routes.items():
        given = {one["name"] for one in route.get("parameters", [])}
        if "requestBody" in route:
            reference = route["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            given |= description["components"]["schemas"][reference]["properties"].keys()
        known = arguments_of(OPERATIONS[name].method).values()
        arguments = {one.name for each in known for one in (each.parts.values() or [each]) if one.option.offered}
        # How files are cut and read is said by whoever runs the server.
        left_out = declared(FileOptions).keys() | {"enrichment"} if name == "index" else set()
        assert arguments - left_out <= given, name


@pytest.mark.slow
async def test_a_search_is_that_of_the_library(filled, served):
    own = (await filled.collection(COLLECTION).search("rotated key", 3, {"lang": "en"}, explain=True)).to_dict()
    for filters, path in product(({"lang": "en"}, 'lang == "en"'), ("/v1/search", "/search")):
        answer = await served.post(path, {"query": "rotated key", "top_k": 3, "filters": filters, "explain": True})
        ignored = dict.fromkeys(("timings", "legs", "query_cached"))
        assert answer.json() | ignored == json.loads(json.dumps(own)) | ignored
    # The page's own sum, from the two scores, gives the library's order and scores for every weight.
    found = (await served.post("/v1/candidates", {"query": "rotated key vault"})).json()
    assert len(found["hits"]) == 5
    about = found["explanation"]
    for weight in (0.0, 0.3, 1.0):
        scores = {}
        for hit in found["hits"]:
            z = (hit["vector_score"] - about["similarity_mean"]) / about["similarity_deviation"]
            words = hit["keyword_score"] / about["greatest_keyword_score"]
            scores[hit["id"]] = (1 - weight) * words + weight * z / 6
        own = await filled.collection(COLLECTION).search("rotated key vault", 5, weights={"vector": weight})
        assert {hit.id: hit.fused_score for hit in own} == pytest.approx(scores)


async def test_pages_are_one_list(served):
    search = {"query": "key vault fruit", "top_k": 2, "max_results": 5}
    page = (await served.post("/v1/search", search)).json()
    ids = [hit["id"] for hit in page["hits"]]
    while page["next_cursor"] is not None:
        page = (await served.post("/v1/search/page", {"cursor": page["next_cursor"]})).json()
        ids += [hit["id"] for hit in page["hits"]]
    assert sorted(ids) == [f"d{number}" for number in range(5)]
    assert (await served.post("/v1/search/page", {"cursor": "torn"})).status_code == 404
    filters = {"filters": "exists lang"}
    page = filters | {"cursor": (await served.post("/v1/search", search | filters)).json()["next_cursor"]}
    assert (await served.post("/v1/search/page", page)).status_code == 200
    refused = await served.post("/v1/search/page", page | {"filters": {"tenant": 3}})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "filters")


async def test_an_answer_is_streamed_sentence_by_sentence(filled):
    body = {"question": "how often is a key rotated?", "stream": True}
    async with on_a_port(filled) as served:
        whole = (await served.post("/query", {**body, "stream": False})).json()
        answers = [await served.post("/v1/answer", body) for _ in range(5)]
        assert (await served.post("/v1/search", {"query": "key"})).status_code == 200
        assert served.state.metrics.refused == {}  # reading a whole stream is not counted as leaving
    for answer in answers:
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
        assert (answer.status_code, answer.json()["ids"][0]) == (201, "one")
        assert (await served.http.get("/v1/chunks/one?collection=fresh")).json()["content"] == "One."
        assert len((await served.http.get("/v1/chunks?collection=fresh")).json()["chunks"]) == 2
        gone = await served.http.request("DELETE", "/v1/documents", json={"collection": "fresh", "ids": ["one"]})
        assert gone.json() == {"chunks": 1, "documents": 1, "dry_run": False}
        assert (await served.http.get("/v1/chunks/one?collection=fresh")).status_code == 404
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
        (hit,) = (await served.post("/v1/search", {"query": "rotated"})).json()["hits"]
        assert hit["source_document"] == "keys.md"
        assert (await served.post(f"{place}/retry", {})).status_code == 409
        assert (await served.post("/index", {"paths": [f"{tmp_path}/../elsewhere", "/"]})).status_code == 403
        assert (await served.post("/v1/jobs", {"kind": "rechunk"})).status_code == 403


async def test_the_process_says_how_it_is(served):
    assert (await served.http.get("/healthz")).json() == {"status": "ok"}
    ready = await served.http.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.json()["checks"].keys() == {"database", "extension", "settings", "models"}
    for path in ("/healthz", "/readyz", "/"):  # as balancers ask
        assert (await served.http.head(path)).status_code == 200
    await served.post("/v1/search", {"query": "key"})
    figures = (await served.http.get("/metrics")).text
    wanted = {
        'semlex_requests_total{method="POST",route="/v1/search",status="200"} 1', 'semlex_jobs{state="queued"} 0',
        'semlex_searches_total{operation="search"} 1', 'semlex_request_seconds_count{route="/v1/search"} 1',
    }  # fmt: skip
    assert wanted <= {*figures.splitlines()}
    names = re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", figures, re.MULTILINE)
    assert re.findall(r"^# HELP (\S+) .+\.$", figures, re.MULTILINE) == names
    assert len(set(names)) == len(names)
    assert {"semlex_pool_size", "semlex_build_info", "process_cpu_seconds_total", "process_open_fds"} <= set(names)
    values = [line for line in figures.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z_]+(\{[^{}]+\})? [\d.e+]+", line) for line in values), values


async def test_a_collection_that_was_dropped_and_made_again(changing, database_url):
    posted = {"collection": COLLECTION, "documents": [{"id": "h", "content": "A key of the new one."}]}
    async with in_process(changing, rights="admin") as served, client_of(database_url) as other:
        for _ in range(2):
            assert (await served.post("/v1/search", {"query": "key"})).status_code == 200
            await other.drop(COLLECTION)
            for _ in range(2):
                assert (await served.post("/v1/search", {"query": "key"})).status_code == 404
            await other.collection(COLLECTION).add_texts(["A key of another one."], ids=["other"])
            (hit,) = (await served.post("/v1/search", {"query": "key"})).json()["hits"]
            assert hit["id"] == "other"
        await other.drop(COLLECTION)
        await other.collection(COLLECTION).add_texts(["A key of another one."], ids=["other"])
        assert [(await served.post("/v1/documents", posted)).status_code for _ in range(3)] == [404, 201, 201]


@pytest.fixture
async def used(database_url, tmp_path):
    """A client with a collection into which a folder was read, that was asked, and that has a job."""
    (tmp_path / "keys.md").write_text("# Keys\n\nA key is rotated every 90 days.\n", encoding="utf-8")
    async with Client(database_url, HashEmbedder(), use_reranking=False, query_log="text") as client:
        collection = client.collection(COLLECTION)
        await collection.index(tmp_path)
        await collection.jobs.submit("optimize")
        assert await client.work(drain=True) == 1
        await collection.search("how often is a key rotated?")
        await client._resources.query_log.flush()
        yield client


async def test_every_route_answers_for_a_collection_in_use(used, tmp_path):
    routes = [route.path for router in ROUTERS for route in router.routes if "GET" in route.methods]
    asked = {  # the route -> what follows its path
        "/v1/collections/{name}": ("", "?exact=true"), "/v1/document": ("?document=keys.md",),
        "/v1/outline": ("?document=keys.md",), "/v1/jobs": ("", "?collection=handbook&state=done"),
        "/v1/fields": ("", "?values=true"), "/v1/judgements": ("?question=key",),
        "/page/{file}": (),  # its own tests
    }  # fmt: skip
    async with in_process(used, rights="admin", judgements=tmp_path / "judgements") as served:

        async def get(path):
            return (await served.http.get(path)).json()

        known = {"id": (await get("/v1/chunks"))["chunks"][0]["id"], "job_id": (await get("/v1/jobs"))["jobs"][0]["id"]}
        for route in routes:
            for more in asked.get(route, ("",)):
                path = route.replace("{id:path}", "{id}").format(name=COLLECTION, **known) + more
                assert (await served.http.get(path)).status_code == 200, path
        place = "/v1/collections/handbook/description"
        for text, told in (("All keys", "All keys"), (None, "Among its titles: Keys.")):
            assert (await served.http.put(place, json={"text": text})).json() == {"description": told}
            [one] = (await get("/v1/collections"))["collections"]
            assert one["description"] == (await get(place))["description"] == told
        about = await get("/v1/collections/handbook")
        assert datetime.fromisoformat(about["last_run"]["started_at"]).tzinfo is not None
        assert (await get("/v1/collections/handbook/queries"))["logged"] == 1
        assert about["server"]
        (tmp_path / "cellar.md").write_text("Later.")
        told = set()
        for name in ("cellar", "attics"):  # the answer does not reveal whether the file exists
            answer = await served.post("/v1/why", {"document": f"{tmp_path}/{name}.md", "question": "key"})
            told.add(str(answer.json()["reasons"]).replace(name, "X"))
        assert len(told) == 1
    async with in_process(used, rights="write") as served:  # only an operator learns where the data is
        about = (await served.http.get("/v1/collections/handbook")).json()
        assert about["documents"] == 1
        assert not {"server", "data_folder"} & about.keys()


async def test_documents_are_listed_by_pages(database_url, tmp_path):
    # A name that begins as another, and one that sorts before the mark between source and path.
    places = product(("docs", "docs-2", "docs: a"), ("a.md", "b.md"))
    folder_with(tmp_path, {f"{folder}/{name}": f"A key in {name}." for folder, name in places})
    async with Client(database_url, "none") as client, in_process(client) as served:
        await client.collection(COLLECTION).index(*tmp_path.iterdir())
        every = (await served.http.get("/v1/documents")).json()
        assert (len(every["documents"]), every["next_after"]) == (6, None)
        for limit in (1, 4, 5, 6):
            seen, page = [], {"limit": limit}
            while len(seen) <= 6 and page.get("after", "") is not None:
                found = (await served.http.get("/v1/documents", params=page)).json()
                assert len(found["documents"]) <= limit
                seen += found["documents"]
                page["after"] = found["next_after"]
            assert seen == every["documents"]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | st.integers() | numbers | texts
values = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8)
metadata = st.dictionaries(texts, values, max_size=4)
hits = st.builds(
    SearchResult,
    content=texts,
    metadata=st.builds(HitMetadata, metadata, st.none() | numbers, st.none()),
    id=texts,
    child_ids=st.lists(texts, max_size=2),
    created_at=st.datetimes(timezones=st.just(UTC)),
    heading_path=st.lists(texts, max_size=3).map(tuple),
    line=st.none() | st.integers(1, 10**9),
    rank=st.integers(1, 1000),
    vector_score=st.none() | numbers,
)


@pytest.mark.slow
@given(hits=st.lists(hits, max_size=3), warnings=st.lists(texts, max_size=2))
@example(hits=[SearchResult("text", metadata={"whole": 2**70, "less": -(2**64)})], warnings=[])
def test_hits_are_what_their_dictionary_says(hits, warnings):
    """The slow twin is `to_dict`; a whole number of any size is written as it is."""
    found = SearchResults(
        hits,
        legs={"vector": LegReport("vector", "scan", 0.5, None, 3, 1.25)},
        timings={"database": 1.5},
        warnings=warnings,
        documents=[DocumentHits(1, "manual", "/manual", "a.md", hits)],
        route=Route("factual", "short", "rules", None),
    )
    whole = found.to_dict()
    assert json.loads(rows_as_json("hits", found, vars(found), None)) == whole
    some = json.loads(rows_as_json("hits", found, vars(found), ["id", "rank"]))
    short = [{"id": hit["id"], "rank": hit["rank"]} for hit in whole["hits"]]
    assert some == whole | {"hits": short, "documents": [{**whole["documents"][0], "hits": short}]}
    assert json.loads(rows_as_json("chunks", found, {}, ["id", "rank"])) == {"chunks": short}


def test_what_json_has_no_type_for():
    @dataclass
    class Held:
        found: Any

    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    written = {
        "time": (moment, "2026-01-02T03:04:05.000006+00:00"),
        "id": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        "path": (Path("a") / "b", str(Path("a") / "b")),
        "bytes": (b"\x01\xff", "01ff"),
        "set": ({3, 1, 2}, [1, 2, 3]),
        "held": (Held([moment, {"b", "a"}]), {"found": ["2026-01-02T03:04:05.000006+00:00", ["a", "b"]]}),
    }
    for more in ({}, {"large": (2**64, 2**64)}):
        value, expected = ({name: both[at] for name, both in (written | more).items()} for at in (0, 1))
        assert json.loads(as_json(value)) == expected
