"""The database's own refusal: a client with a role, and what an assistant then reaches."""

from __future__ import annotations

import psycopg
import pytest
from mcp.client import Client as Assistant
from psycopg import sql

from semlex import Client
from semlex.errors import ConfigurationError, StoreError
from semlex.server.mcp.access import Access
from semlex.server.mcp.server import mcp_server
from semlex.server.options import ServeOptions
from tests.support.http_server import in_process

ROLE = "assistant_reader"


@pytest.fixture
def reader(database_url, client):
    """A role that may read ``handbook``, and nothing else."""
    del client  # has made the tables
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(ROLE)))
        grants = [sql.SQL("USAGE ON SCHEMA semlex, public")]
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'semlex'::regnamespace AND relkind = 'r'"
            " AND relname NOT LIKE 'other%'"
        ).fetchall()
        grants += [sql.SQL("SELECT ON semlex.{}").format(sql.Identifier(name)) for (name,) in tables]
        for grant in grants:
            connection.execute(sql.SQL("GRANT {} TO {}").format(grant, sql.Identifier(ROLE)))
        yield ROLE
        connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(ROLE)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(ROLE)))


async def test_an_assistant_has_the_rights_of_the_role(reader, database_url, docs):
    async with Client(database_url, "none", role=reader) as narrow:
        access = Access.of(writes=True, folders=[docs])
        async with Assistant(mcp_server(narrow, access)) as assistant:
            found = await assistant.call_tool("search", {"query": "ninety days", "collection": "handbook"})
            assert found.structured_content["hits"]
            listed = (await assistant.call_tool("list_collections", {})).structured_content["collections"]
            # The registry names both; what the role may not read is not counted for it.
            assert {one["name"]: one["chunks"] for one in listed} == {"handbook": 2, "other": None}
            for tool, arguments in (
                ("search", {"query": "x", "collection": "other"}),
                ("collection_stats", {"collection": "other"}),
                ("index_folder", {"folder": str(docs), "collection": "handbook"}),
                ("index_folder", {"folder": str(docs), "collection": "fresh"}),
                ("reindex_collection", {"collection": "handbook"}),
            ):
                refused = await assistant.call_tool(tool, arguments)
                assert refused.is_error, (tool, arguments)
                assert "Error executing" not in refused.content[0].text


async def test_a_client_with_a_role_has_it_everywhere(reader, database_url):
    async with Client(database_url, "none", role=reader) as narrow:
        assert [one.name for one in await narrow.collections()] == ["handbook", "other"]
        assert await narrow.collection("handbook").count() == 2
        for refused in (narrow.drop("handbook"), narrow.collection("handbook").add_texts(["more"])):
            with pytest.raises(StoreError):
                await refused
    async with Client(database_url, "none") as wide:
        assert await wide.collection("handbook").count() == 2
    with pytest.raises(ConfigurationError, match="reserved"):
        Client(database_url, role="none")


async def test_a_server_has_the_rights_of_its_role(reader, database_url):
    async with in_process(url=database_url, role=reader, rights="admin") as served:
        assert (await served.post("/v1/search", {"query": "ninety days"})).json()["hits"]
        for path, body in (
            ("/v1/documents", {"documents": [{"content": "more"}]}),
            ("/v1/search", {"query": "x", "collection": "other"}),
        ):
            assert (await served.post(path, body)).status_code == 503, path
    with pytest.raises(ConfigurationError, match="semlex worker"):
        ServeOptions(role=reader, jobs=1)


async def test_of_very_many_collections_the_first_are_listed(database_url, client, monkeypatch):
    del client  # has made two
    monkeypatch.setattr("semlex.server.mcp.tools.MAX_COLLECTIONS", 1)
    async with Client(database_url, "none") as wide, Assistant(mcp_server(wide, Access.of())) as assistant:
        listed = await assistant.call_tool("list_collections", {})
        assert [one["name"] for one in listed.structured_content["collections"]] == ["handbook"]
        assert listed.structured_content["complete"] is False
        assert listed.content[0].text.splitlines()[-1] == "... and 1 more"
