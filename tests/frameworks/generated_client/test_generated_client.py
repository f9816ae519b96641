"""A client that another program generates from the description of the routes: typed answers, and a search."""

import json
import subprocess

from semlex import Document, SyncClient
from semlex.server.app import create_app
from semlex.testing import HashEmbedder
from tests.support.folders import ROOT
from tests.support.http_server import COLLECTION, FixedSettings, in_a_thread, settings_for

# Made by `./x test --framework generated_client`: the generator's packages contradict ours.
GENERATOR = ROOT / ".state" / "frameworks" / "generated_client-generator" / "bin"
SEARCH = """
import sys
from generated import Client
from generated.api.answer import context
from generated.api.find import search
from generated.models import Context, ContextBody, Hit, SearchBody, SearchResults

client = Client(base_url=sys.argv[1])
found = search.sync(client=client, body=SearchBody(query="key", top_k=1))
assert isinstance(found, SearchResults), found
(hit,) = found.hits
assert isinstance(hit, Hit)
print(hit.id, hit.content, hit.rank, hit.metadata["year"], isinstance(hit.fused_score, float), hit.rerank_score)
narrowed = search.sync(client=client, body=SearchBody(query="key", top_k=1, fields=["id"]))
assert narrowed.hits[0].to_dict() == {"id": hit.id}
passages = context.sync(client=client, body=ContextBody(question="key"))
assert isinstance(passages, Context)
assert passages.sources[0].number == 1
"""


def test_a_generated_client_searches_and_its_hits_have_types(database_url, tmp_path):
    with SyncClient(database_url, embedding_model=HashEmbedder(), use_reranking=False) as client:
        client.collection(COLLECTION).add_documents([Document("A key is rotated.", {"year": 2020}, "keys")])
    openapi = create_app(source=FixedSettings(settings_for())).openapi()
    (tmp_path / "openapi.json").write_text(json.dumps(openapi), encoding="utf-8")
    command = [GENERATOR / "openapi-python-client", "generate", "--path", "openapi.json", "--output-path", "generated"]
    given = {"cwd": tmp_path, "capture_output": True, "text": True}
    generated = subprocess.run([*command, "--meta", "none"], check=False, **given)
    assert generated.returncode == 0, generated.stdout + generated.stderr
    assert "unable to parse" not in generated.stdout.lower(), generated.stdout
    with in_a_thread(database_url, rate=0) as (host, port):
        command = [GENERATOR / "python", "-c", SEARCH, f"http://{host}:{port}"]
        searched = subprocess.run(command, check=False, **given)
    assert (searched.stdout, searched.stderr) == ("keys A key is rotated. 1 2020 True None\n", "")
