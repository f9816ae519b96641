"""The vector store: what goes in comes back, sync and async alike, and semlex's errors come through."""

import asyncio
import copy
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, aindex, index

from semlex import TermOverlapReranker, connect, connect_sync
from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, ModelMismatchError, ValidationError
from semlex.integrations.langchain import LangChainEmbedder, SemlexVectorStore
from tests.frameworks.langchain.word_embeddings import WordEmbeddings
from tests.support.filter_trees import values

TEXTS = [
    "keys are rotated every ninety days",
    "keys are rotated every ninety days by their holder",
    "a vault stores keys",
    "a banana is a yellow fruit",
]
IDS = ["rotation", "holder", "vault", "banana"]


@pytest.fixture(scope="module")
def shared(module_database):
    with SemlexVectorStore(WordEmbeddings(), collection="shared", db_url=module_database) as store:
        yield store


@pytest.fixture
def store(database_url):
    metadata = [{"n": number} for number in range(len(TEXTS))]
    with SemlexVectorStore.from_texts(TEXTS, WordEmbeddings(), metadata, ids=IDS, db_url=database_url) as made:
        yield made


def typed(value):
    """A value with the types of all that is in it; JSON knows one zero."""
    if isinstance(value, dict):
        return {key: typed(one) for key, one in value.items()}
    return [typed(one) for one in value] if isinstance(value, list) else (type(value), value)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.text(st.sampled_from("abé. _$@"), min_size=1, max_size=4), values), max_size=4))
def test_metadata_comes_back_equal(shared, metadata):
    given_metadata = copy.deepcopy(metadata)
    documents = [Document(page_content=f"text {n}", metadata=one) for n, one in enumerate(metadata)]
    ids = shared.add_documents(documents)
    assert typed([one.metadata for one in documents]) == typed(given_metadata)
    assert [one.id for one in documents] == [None] * len(documents)
    found = shared.get_by_ids(ids)
    assert [typed(one.metadata) for one in found] == [typed(one) for one in given_metadata]
    assert [one.page_content for one in found] == [one.page_content for one in documents]
    assert asyncio.run(shared.aget_by_ids(ids)) == found
    shared.delete(ids) if ids else None
    assert shared.get_by_ids(ids) == []


changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y z"])))),
        st.tuples(st.just("delete"), st.lists(st.sampled_from("abcd"), max_size=3)),
    ),
    max_size=6,
)


@settings(max_examples=25)
@given(changes)
def test_a_history_is_that_of_a_dict(shared, changes):
    twin = {}
    shared.delete(["a", "b", "c", "d"])
    for number, (kind, what) in enumerate(changes):
        if kind == "delete":
            assert shared.delete(what) if number % 2 else asyncio.run(shared.adelete(what))
            for one in what:
                twin.pop(one, None)
        else:
            ids, texts = [one for one, _ in what], [text for _, text in what]
            added = shared.add_texts(texts, ids=ids) if number % 2 else asyncio.run(shared.aadd_texts(texts, ids=ids))
            assert added == ids
            twin |= dict(what)
        assert {one.id: one.page_content for one in shared.get_by_ids(["d", "c", "b", "a"])} == twin
        assert {one.id for one in shared.similarity_search("x y z", k=10)} == set(twin)


def test_async_methods_answer_as_the_others(store):
    vector = WordEmbeddings().embed_query("keys rotated")
    for method, arguments in (
        ("similarity_search", ("keys rotated", 3)),
        ("similarity_search_with_score", ("keys rotated", 3)),
        ("similarity_search_with_relevance_scores", ("keys rotated", 3)),
        ("similarity_search_by_vector", (vector, 3)),
        ("max_marginal_relevance_search", ("keys rotated", 2, 4, 0.3)),
        ("max_marginal_relevance_search_by_vector", (vector, 2, 4, 0.3)),
        ("search", ("keys rotated", "mmr")),
        ("get_by_ids", (["vault", "nothing", "banana"],)),
    ):

        async def several(method=method, arguments=arguments):
            return await asyncio.gather(*(getattr(store, f"a{method}")(*arguments) for _ in range(3)))

        expected = getattr(store, method)(*arguments)
        assert expected, method
        for _ in range(2):  # of two event loops
            assert asyncio.run(several()) == [expected] * 3, method


@pytest.mark.parametrize("embedding", [WordEmbeddings(), None], ids=["with a model", "without one"])
def test_an_empty_store_has_nothing(database_url, embedding):
    model = {} if embedding else {"embedding_model": "none"}
    vector = WordEmbeddings().embed_query("keys")
    with SemlexVectorStore(embedding, db_url=database_url, **model) as store:
        for options in ({}, {"mode": "keyword"}, *([{"mode": "vector"}] if embedding else [])):
            for kind in ("", "_with_score", "_with_relevance_scores"):
                assert getattr(store, f"similarity_search{kind}")("keys", **options) == [], (kind, options)
            assert asyncio.run(store.asimilarity_search("keys", **options)) == []
        assert store.similarity_search_by_vector(vector) == []
        assert asyncio.run(store.asimilarity_search_by_vector(vector)) == []
        assert store.max_marginal_relevance_search("keys") == []
        assert store.max_marginal_relevance_search_by_vector(vector) == []


class Broken:
    identity = "broken"

    def score(self, query, texts):
        raise RuntimeError("never shown")

    def close(self): ...


def test_what_did_not_go_as_asked_is_logged(database_url, caplog):
    with SemlexVectorStore(db_url=database_url, embedding_model="none", reranker_model=Broken()) as store:
        store.add_texts(TEXTS, ids=IDS)
        assert len(store.similarity_search("keys", 3)) == 3
        assert caplog.messages == ["search: the reranker failed (RuntimeError): hits are in the order of the fusion"]
        caplog.clear()
        assert len(asyncio.run(store.asimilarity_search("keys", 3, rerank=False))) == 3
        assert caplog.messages == []


def test_scores_order_the_answer_and_relevance_is_the_cosine(store):
    for options in ({}, {"mode": "vector"}, {"mode": "keyword"}, {"fusion": "rrf"}):
        scored = store.similarity_search_with_score("keys rotated", **options)
        assert [one for one, _ in scored] == store.similarity_search("keys rotated", **options)
        assert [score for _, score in scored] == sorted((score for _, score in scored), reverse=True)
    hits = store.collection.search("keys rotated", 4)
    scored = store.similarity_search_with_score("keys rotated")
    assert [score for _, score in scored] == [hit.fused_score for hit in hits]
    [(_, cosine)] = store.similarity_search_with_score(TEXTS[0], 1, mode="vector")
    assert math.isclose(cosine, 1, abs_tol=1e-6)
    # Relevance is the cosine, whatever the order.
    relevant = store.similarity_search_with_relevance_scores("keys rotated")
    assert [one.id for one, _ in relevant] == [hit.id for hit in hits]
    assert [score for _, score in relevant] == [max(0.0, hit.vector_score or 0.0) for hit in hits]
    assert relevant[0][1] > relevant[-1][1]
    options = {"score_threshold": relevant[1][1], "k": 4}
    retriever = store.as_retriever(search_type="similarity_score_threshold", search_kwargs=options)
    above = [one.id for one, score in relevant if score >= relevant[1][1]]
    assert [one.id for one in retriever.invoke("keys rotated")] == above
    assert [*map(store._select_relevance_score_fn(), (-0.5, 0.25, 0.5, 7.0))] == [0.0, 0.25, 0.5, 1.0]
    # It needs something to go by.
    with pytest.raises(EmbeddingsMissingError, match="similarity_search_with_score"):
        store.similarity_search_with_relevance_scores("keys", mode="keyword")
    assert store.similarity_search_with_relevance_scores("zebra", mode="keyword") == []


def test_a_reranker_s_score_is_the_relevance(database_url):
    with SemlexVectorStore(db_url=database_url, embedding_model="none", reranker_model=TermOverlapReranker()) as store:
        store.add_texts(TEXTS, ids=IDS)
        scored = store.similarity_search_with_relevance_scores("vault keys", 3)
        ordered = store.similarity_search_with_score("vault keys", 3)
        assert [one.id for one, _ in scored] == [one.id for one, _ in ordered]
        assert scored[0][0].id == "vault"
        assert 0 < scored[-1][1] < scored[0][1] <= 1
        assert ordered[-1][1] < ordered[0][1]  # mixed with the score of the search


def test_marginal_relevance_prefers_what_is_unlike(store):
    def ids(**options):
        return [one.id for one in store.max_marginal_relevance_search("keys are rotated", 2, 4, **options)]

    assert ids(lambda_mult=1.0) == [one.id for one in store.similarity_search("keys are rotated", 2)]
    assert set(ids(lambda_mult=1.0)) == {"rotation", "holder"}
    assert ids(lambda_mult=0.0)[1] == "banana"
    with pytest.raises(ConfigurationError, match="lambda_mult"):
        ids(lambda_mult=1.5)


def test_a_document_without_an_id_is_stored_once(store):
    mixed = [Document(page_content="new", id="own"), Document(page_content="new")]
    own, made = store.add_documents(mixed)
    assert own == "own" != made != ""
    assert store.add_documents(mixed) == [own, made]
    assert store.collection.count() == len(TEXTS) + 2


def test_the_model_is_stored_with_the_collection(store, database_url, caplog):
    assert isinstance(store.embeddings, WordEmbeddings)
    assert store.collection.info.embedding.model == "langchain:WordEmbeddings:words-1"
    with SemlexVectorStore(WordEmbeddings(), db_url=database_url) as again:
        assert again.similarity_search("banana", 1)[0].id == "banana"
    refused = pytest.raises(ModelMismatchError, match="words-2")
    with refused, SemlexVectorStore(WordEmbeddings("words-2"), db_url=database_url) as other:
        other.add_texts(["text"])
    caplog.clear()  # without its model, words answer and say so
    with connect_sync(database_url) as client:
        results = client.collection("langchain", create=False).search("banana")
        assert [hit.id for hit in results] == ["banana"]
        assert "SemlexVectorStore(embedding)" in results.warnings[0]
        same = SemlexVectorStore(collection=client.collection("langchain"))
        assert same.similarity_search("banana", 1)[0].id == "banana"
    assert "LangChainEmbedder(embedding)" in caplog.text
    with pytest.raises(ConfigurationError, match="two models"):
        SemlexVectorStore(WordEmbeddings(), db_url=database_url, embedding_model="static")
    assert LangChainEmbedder(WordEmbeddings(), name="words").identity.model == "langchain:words"


DOCUMENTS = [Document(page_content=text, id=one) for text, one in zip(TEXTS, IDS, strict=True)]


def test_semlex_s_own_model(database_url):
    with SemlexVectorStore.from_documents(DOCUMENTS, None, db_url=database_url) as store:
        assert store.embeddings is None
        assert store.similarity_search("yellow fruit", 1)[0].id == "banana"
        assert store.as_retriever().tags == ["SemlexVectorStore"]


async def test_a_store_and_a_collection_of_a_loop(database_url):
    store = await SemlexVectorStore.afrom_documents(DOCUMENTS, WordEmbeddings(), db_url=database_url)
    try:
        assert await store.asimilarity_search("banana", 1) == [DOCUMENTS[3]]
    finally:
        await asyncio.to_thread(store.close)
    async with connect(database_url, LangChainEmbedder(WordEmbeddings())) as client:
        store = SemlexVectorStore(collection=client.collection("own"))
        await store.aadd_texts(TEXTS, ids=IDS)
        assert [one.id for one in await store.asimilarity_search("banana", 1)] == ["banana"]
        with pytest.raises(ConfigurationError, match="connect_sync"):
            store.similarity_search("banana")


def test_a_collection_that_is_given_stays_open(database_url):
    with connect_sync(database_url, "none") as client:
        collection = client.collection("own")
        with SemlexVectorStore(collection=collection) as store:
            store.add_texts(TEXTS, ids=IDS)
        assert collection.count() == len(TEXTS)
        for wrong in ({"embedding": WordEmbeddings()}, {"db_url": database_url}):
            with pytest.raises(ConfigurationError, match="connect_sync"):
                SemlexVectorStore(collection=collection, **wrong)
    with pytest.raises(ConfigurationError, match="collection must be"):
        SemlexVectorStore(collection=object())


def test_errors_come_through_and_a_failed_beginning_leaves_nothing_open(store, database_url):
    other = {"db_url": database_url, "collection": "other"}
    for error, message, wrong in (
        (ValidationError, "NUL", lambda: store.add_texts(["good", "bad\0"], ids=["good", "bad"])),
        (ValidationError, "ids", lambda: store.add_texts(["a", "b"], ids=["1"])),
        (ValidationError, "metadata key 'when'", lambda: store.add_texts(["a"], [{"when": object()}])),
        (ConfigurationError, "drop the collection", store.delete),
        (TypeError, "fetch", lambda: store.similarity_search("keys", fetch=3)),
        (ValidationError, "top_k", lambda: store.similarity_search("keys", k=0)),
        (ValidationError, None, lambda: SemlexVectorStore.from_texts(["\0"], WordEmbeddings(), **other)),
        (ValidationError, None, lambda: asyncio.run(SemlexVectorStore.afrom_texts(["\0"], WordEmbeddings(), **other))),
    ):
        with pytest.raises(error, match=message):
            wrong()
    assert store.get_by_ids(["good"]) == []


class Ragged(WordEmbeddings):
    def embed_documents(self, texts):
        return [[1.0] * (2 + number) for number, _ in enumerate(texts)]


def test_vectors_that_cannot_be_used_are_refused():
    with pytest.raises(ModelError, match="vectors of equal length for 2 texts"):
        LangChainEmbedder(Ragged()).embed_documents(["a", "b"])
    with pytest.raises(ModelMismatchError, match="dimension 32; expected 5"):
        LangChainEmbedder(WordEmbeddings(), dimensions=5).embed_query("a")
    with pytest.raises(ConfigurationError, match="embeddings must be Embeddings"):
        LangChainEmbedder("openai")


def test_documents_are_kept_in_step_by_langchain_s_index(database_url):
    def page(number, text):
        return Document(page_content=text, metadata={"source": f"{number}.md"})

    records = InMemoryRecordManager("semlex")
    records.create_schema()
    options = {"cleanup": "incremental", "source_id_key": "source", "key_encoder": "sha256"}
    with SemlexVectorStore(WordEmbeddings(), db_url=database_url) as store:
        done = index([page(1, "old"), page(2, "same")], records, store, **options)
        assert (done["num_added"], done["num_deleted"]) == (2, 0)
        done = asyncio.run(aindex([page(1, "new"), page(2, "same")], records, store, **options))
        assert (done["num_added"], done["num_skipped"], done["num_deleted"]) == (1, 1, 1)
        assert {one.page_content for one in store.similarity_search("new old same", 10)} == {"new", "same"}
