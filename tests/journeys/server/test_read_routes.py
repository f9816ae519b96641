"""Every route that is asked with GET answers for a collection that has everything: files, jobs, logged questions."""

from __future__ import annotations

from datetime import datetime
from itertools import product

import pytest

from semlex import Client
from semlex.server.routes import ROUTERS
from semlex.testing import HashEmbedder
from tests.support.http_server import COLLECTION, in_process

# The route -> paths that are asked, where the route's own is not enough.
ASKED = {
    "/v1/collections/{name}": ("/v1/collections/handbook", "/v1/collections/handbook?exact=true"),
    "/v1/collections/{name}/embeddings": ("/v1/collections/handbook/embeddings",),
    "/v1/collections/{name}/description": (),  # below
    "/v1/collections/{name}/queries": ("/v1/collections/handbook/queries",),
    "/v1/document": ("/v1/document?document=keys.md",),
    "/v1/outline": ("/v1/outline?document=keys.md",),
    "/v1/chunks/{id:path}": ("/v1/chunks/{id}",),
    "/v1/jobs": ("/v1/jobs", "/v1/jobs?collection=handbook&state=done"),
    "/v1/jobs/{job_id}": ("/v1/jobs/{job_id}",),
    "/v1/fields": ("/v1/fields", "/v1/fields?values=true"),
    "/v1/judgements": ("/v1/judgements?question=key",),
    "/page/{file}": (),  # its own tests
}


@pytest.fixture
async def used(database_url, tmp_path):
    """A client with a collection into which a folder and a document were read, and that was asked."""
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
    async with in_process(used, rights="admin", judgements=tmp_path / "judgements") as served:
        known = {
            "id": (await served.http.get("/v1/chunks")).json()["chunks"][0]["id"],
            "job_id": (await served.http.get("/v1/jobs")).json()["jobs"][0]["id"],
        }
        for route in routes:
            for path in ASKED.get(route, (route,)):
                answer = await served.http.get(path.format(**known))
                assert answer.status_code == 200, (path, answer.text)
        place = "/v1/collections/handbook/description"
        for text, told in (("All keys", "All keys"), (None, "Among its titles: Keys.")):
            assert (await served.http.put(place, json={"text": text})).json() == {"description": told}
            [one] = (await served.http.get("/v1/collections")).json()["collections"]
            assert one["description"] == (await served.http.get(place)).json()["description"] == told
        about = (await served.http.get("/v1/collections/handbook")).json()
        assert datetime.fromisoformat(about["last_run"]["started_at"]).tzinfo is not None
        assert (await served.http.get("/v1/collections/handbook/queries")).json()["logged"] == 1
        assert about["server"]


async def test_documents_are_listed_by_pages(database_url, tmp_path):
    # A name that begins as another, and one that sorts before the mark between source and path.
    folders = [tmp_path / name for name in ("docs", "docs-2", "docs: a")]
    for folder, name in product(folders, ("a.md", "b.md")):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"A key in {name}.", encoding="utf-8")
    async with Client(database_url, "none") as client, in_process(client) as served:
        await client.collection(COLLECTION).index(*folders)
        every = (await served.http.get("/v1/documents")).json()
        assert (len(every["documents"]), every["next_after"]) == (6, None)
        for limit in (1, 4, 5, 6):
            seen, after = [], None
            while len(seen) <= 6:
                page = {"limit": limit} | ({} if after is None else {"after": after})
                found = (await served.http.get("/v1/documents", params=page)).json()
                seen += found["documents"]
                assert len(found["documents"]) <= limit
                if (after := found["next_after"]) is None:
                    break
            assert seen == every["documents"]


async def test_where_a_collection_is_stays_with_the_operator(used):
    async with in_process(used, rights="write") as served:
        about = (await served.http.get("/v1/collections/handbook")).json()
        assert about["documents"] == 1
        assert not {"server", "data_folder"} & about.keys()
