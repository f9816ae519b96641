"""The models over HTTP: other programs' shapes, and the numbers of the model itself."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager, closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import Client
from semlex.embedding.base import EmbedderIdentity, normalise
from semlex.embedding.remote import OpenAIEmbedder
from semlex.errors import ModelServerError
from semlex.reranking.remote import CohereReranker
from semlex.reranking.term_overlap import TermOverlapReranker
from semlex.server.routes.models import _written
from semlex.testing import HashEmbedder
from tests.support.http_server import bearer, on_a_port

TEXTS = ["A key is rotated every 90 days.", "über alles 東京", "x" * 3000, "banana"]


class TwoSidedEmbedder(HashEmbedder):
    """Embeds queries otherwise than documents, can be cut, and reads eight words."""

    least_dimensions = 16
    max_tokens = 8

    @property
    def identity(self):
        return EmbedderIdentity("/srv/models/two-sided", "1", self.dimensions, "ask", "mean", normalised=True)

    def embed_query(self, text):
        return self.embed_documents([f"query {text}"])[0]


@asynccontextmanager
async def served(url, embedder, **options):
    models = {"embedding_model": embedder, "reranker_model": TermOverlapReranker(), "use_reranking": embedder != "none"}
    async with Client(url, **models) as client, on_a_port(client, **options) as running:
        yield running


@pytest.mark.slow
async def test_clients_get_the_numbers_of_the_local_model_in_the_shapes_that_they_read(database_url, tokens):
    secret = tokens.add("reader", "read")
    local, judge = HashEmbedder(), TermOverlapReranker()
    query = "which key is rotated"
    async with served(database_url, local, token_file=tokens.path) as running:
        remote = OpenAIEmbedder("semlex.testing/hash", f"{running.url}/v1", api_key=secret, batch_size=2)
        reranker = CohereReranker("term-overlap/1", f"{running.url}/v1", api_key=secret, batch_size=3)
        with closing(remote), closing(reranker):
            vectors = await asyncio.to_thread(remote.embed_documents, TEXTS)
            one = await asyncio.to_thread(remote.embed_query, query)
            scores = await asyncio.to_thread(reranker.score, query, TEXTS)
        running.http.headers |= bearer(secret)
        body = {"model": "semlex.testing/hash", "input": TEXTS[0], "encoding_format": "float", "user": "u"}
        single = (await running.post("/v1/embeddings", body)).json()
        many = (await running.post("/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"})).json()
        body = {"model": "term-overlap/1", "query": "rotated key", "documents": [*TEXTS, {"text": "key"}], "top_n": 2}
        judged = (await running.post("/v1/rerank", body | {"return_documents": True})).json()
        again = (await running.post("/v2/rerank", body)).json()
    # Both sides normalise: what was of norm 1 may change in its last bit.
    assert vectors == pytest.approx(normalise(local.embed_documents(TEXTS)), abs=1e-7)
    assert one == pytest.approx(local.embed_query(query), abs=1e-7)
    assert scores.tolist() == judge.score(query, TEXTS).tolist()
    assert scores.max() > scores.min()
    vector = local.embed_documents([TEXTS[0]])[0]
    tokens = int(local.count_tokens([TEXTS[0]])[0])
    assert single == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": vector.tolist()}],
        "model": "semlex.testing/hash",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    assert [one["index"] for one in many["data"]] == [0, 1, 2, 3]
    found = np.stack([np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4") for one in many["data"]])
    assert found.tobytes() == local.embed_documents(TEXTS).tobytes()
    assert [sorted(one) for one in judged["results"]] == [["document", "index", "relevance_score"]] * 2
    assert judged["results"][0]["relevance_score"] >= judged["results"][1]["relevance_score"]
    assert {one["index"]: one["document"]["text"] for one in judged["results"]}[0] == TEXTS[0]
    assert again["results"] == [{k: v for k, v in one.items() if k != "document"} for one in judged["results"]]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_both_encodings_are_the_vector_bit_by_bit(numbers):
    vector = np.array(numbers, dtype=np.float32)
    packed, plain = _written(vector, "base64"), _written(vector, "float")
    assert np.frombuffer(base64.b64decode(packed), dtype="<f4").tobytes() == vector.tobytes()
    assert np.array(json.loads(json.dumps(plain)), dtype=np.float32).tobytes() == vector.tobytes()


@pytest.mark.slow
async def test_names_prompts_dimensions_and_limits_are_those_of_the_model(database_url):
    local = TwoSidedEmbedder()
    judging = {"query": "x", "documents": ["x"]}
    async with served(database_url, local) as running:

        async def embedded(**body):
            answer = await running.post("/v1/embeddings", {"input": "short key", **body})
            assert answer.status_code == 200, answer.text
            return np.array(answer.json()["data"][0]["embedding"], dtype=np.float32)

        assert (await embedded(model="two-sided") == local.embed_documents(["short key"])[0]).all()
        assert (await embedded(input_type="query") == local.embed_query("short key")).all()
        whole = local.embed_documents(["short key"])
        assert (await embedded(dimensions=16) == normalise(whole, 16)[0]).all()
        assert (await embedded(dimensions=64) == whole[0]).all()
        for dimensions in (15, 65):
            answer = await running.post("/v1/embeddings", {"input": "short key", "dimensions": dimensions})
            assert (answer.status_code, "16 to 64" in answer.json()["detail"]) == (409, True)
        texts = ["one two", "secretword " * 9]
        answer = await running.post("/v1/embeddings", {"input": texts})
        told = "text 1 of the request (counted from 0) has 9 tokens, but the model reads at most 8"
        assert (answer.status_code, told in answer.json()["detail"], "secretword" in answer.text) == (413, True, False)
        refused = pytest.raises(ModelServerError, match="refuses the text of row 1")
        with closing(OpenAIEmbedder("two-sided", f"{running.url}/v1")) as remote, refused:
            await asyncio.to_thread(remote.embed_documents, texts)
        listed = (await running.http.get("/v1/models")).json()
        known = [(one["object"], one["id"], one["type"], one["created"]) for one in listed["data"]]
        assert known == [("model", "two-sided", "embedding", 0), ("model", "term-overlap/1", "rerank", 0)]
        assert listed["object"] == "list"
        for path, body, known, unknown in (
            ("/v1/embeddings", {"input": "x"}, "two-sided", ("text-embedding-3-small", "/srv/models/two-sided")),
            ("/v1/rerank", judging, "term-overlap/1", ("rerank-v3.5",)),
        ):
            assert (await running.post(path, body | {"model": known})).json()["model"] == known
            for name in unknown:
                answer = await running.post(path, body | {"model": name})
                assert (answer.status_code, answer.json()["type"]) == (404, "urn:semlex:problem:unknown-model")
                assert answer.json()["detail"].endswith(f"this server has {known}")
    async with served(database_url, "none") as running:
        for path, body in (("/v1/embeddings", {"input": "x"}), ("/v1/rerank", judging)):
            answer = await running.post(path, body)
            assert (answer.status_code, answer.json()["type"]) == (404, "urn:semlex:problem:no-model")
        assert (await running.http.get("/v1/models")).json() == {"object": "list", "data": []}


async def test_hostile_inputs_are_refused_and_the_next_is_answered(database_url):
    hostile = [
        None, [], "", "\ud800", 1, True, [1, 2, 3], [[1, 2, 3]], [""], ["ok", None], {"text": "x"}, ["x"] * 2049,
        "x" * 200_000, [["x"]],
    ]  # fmt: skip
    async with served(database_url, HashEmbedder()) as running:
        for value in hostile:
            for path, body in (
                ("/v1/embeddings", {"input": value}),
                ("/v1/rerank", {"query": "key", "documents": value}),
                ("/v1/rerank", {"query": value, "documents": ["key"]}),
            ):
                sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
                answer = await running.http.post(path, **sent)
                assert answer.status_code == 422, (path, str(body)[:100], answer.text)
                assert answer.headers["content-type"] == "application/problem+json"
        for path, body, *extras in (
            ("/v1/embeddings", {"input": ["fine", "too"]},
             {"dimensions": 0}, {"encoding_format": "int8"}, {"input_type": "x"}, {"truncate": True}),
            ("/v1/rerank", {"query": "fine", "documents": ["fine"]},
             {"top_n": 0}, {"top_n": 1001}, {"max_tokens_per_doc": 5}, {"return_documents": 1}),
        ):  # fmt: skip
            assert [(await running.post(path, body | more)).status_code for more in (*extras, {})] == [422] * 4 + [200]
