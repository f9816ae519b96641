"""Whatever old programs write while a model is changed: all vectors, old and new, are those of the present texts."""

import random
import uuid
from contextlib import ExitStack
from itertools import islice

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semlex import open_collection
from semlex.maintenance import version_fill
from semlex.types.documents import Document
from tests.journeys.ingest.test_sync_histories import Folder
from tests.support.properties import OWN_ROWS
from tests.support.retrievers import sync_opened
from tests.support.two_models import OtherEmbedder, assert_vectors, new_model, old_model, texts_of, told, vectors_of

WORDS = ("key", "shutter", "zenith", "vault", "ship", "banana")
# Each example changes the model of a collection, and compares what is there with another one: as long as three others.
EXAMPLES = min(settings().max_examples // 3, 300)

ids = st.integers(0, 9).map("d{}".format)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
added = st.tuples(st.just("add"), st.dictionaries(ids, texts, min_size=1, max_size=4), st.sampled_from(["old", "none"]))
deleted = st.tuples(st.just("delete"), st.lists(ids, min_size=1, max_size=4), st.sampled_from(["old", "none"]))
histories = st.lists(added | deleted, max_size=12)


class BetweenEmbedder(OtherEmbedder):
    """Lets something happen before it embeds: between the reading of a page and its writing."""

    def __init__(self, happen):
        super().__init__()
        self._happen = happen

    def embed_documents(self, texts):
        self._happen()
        return super().embed_documents(texts)


@pytest.fixture
def writers_wait(monkeypatch):
    """Is not empty while nobody can write; small pages, and a look at the versions by every search."""
    waiting = []
    alone = version_fill.without_writers

    async def noted(*arguments):
        waiting.append(True)
        try:
            return await alone(*arguments)
        finally:
            waiting.pop()

    monkeypatch.setattr(version_fill, "without_writers", noted)
    monkeypatch.setattr(version_fill, "PAGE_ROWS", 3)
    monkeypatch.setattr(version_fill, "LAST_ROWS", 2)
    monkeypatch.setattr(open_collection, "LOOK_SECONDS", 0.0)
    return waiting


def answers(store):
    return [told(store.search(query, 20)) for query in ("key shutter zenith", "a vault in the ship", "banana")]


def check_old(session, name, *, whole):
    assert_vectors(vectors_of(session, 1, name), texts_of(session, name), old_model(), whole=whole)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(OWN_ROWS, max_examples=EXAMPLES)
@given(first=st.dictionaries(ids, texts, min_size=1), during=histories, after=histories)
@example(first={"d0": "key"}, during=[("delete", ["d0"], "old")], after=[])
def test_documents_that_change_meanwhile(database_url, looking, writers_wait, *, first, during, after):
    name = f"c{uuid.uuid4().hex[:12]}"
    present = dict(first)
    with ExitStack() as stack:
        stores = {kind: stack.enter_context(sync_opened(database_url, model, collection=name)) for kind, model in
                  (("old", old_model()), ("none", "none"))}  # fmt: skip
        stores["old"].add_texts(list(first.values()), ids=list(first))

        def happen(steps):
            for act, what, who in steps:
                if act == "add":
                    stores[who].add_texts(list(what.values()), ids=list(what))
                    present.update(what)
                else:
                    stores[who].delete(what)
                    for one in what:
                        present.pop(one, None)

        waiting = iter(during)

        def between():
            if not writers_wait:
                happen(islice(waiting, 1))
                # Before the switch the old model answers, and answers from its own vectors.
                check_old(looking, name, whole=False)
                found = stores["old"].search("key shutter", 20)
                assert found.embedding_model in (old_model().identity.model, None)
                warnings = [one for one in found.warnings if "no word" not in one]
                assert warnings == ([] if present else ["the collection is empty"])

        with sync_opened(database_url, "none", collection=name) as changing:
            report = changing.embeddings.change(BetweenEmbedder(between))
        assert (report.version, report.lacking) == (2, 0)
        assert texts_of(looking, name) == present
        assert_vectors(vectors_of(looking, 2, name), present, new_model(), whole=True)
        check_old(looking, name, whole=False)
        with (
            sync_opened(database_url, new_model(), collection=name) as new,
            sync_opened(database_url, new_model(), collection=f"{name}_f") as fresh,
        ):
            stored = new.list_chunks(limit=1_000)
            fresh.add_documents([Document(one.content, one.metadata, id=one.id) for one in stored])
            assert answers(new) == answers(fresh)
        # Both models' programs go on side by side; each makes vectors of its own.
        happen(after)
        assert_vectors(vectors_of(looking, 2, name), present, new_model(), whole=False)
        check_old(looking, name, whole=False)
        assert texts_of(looking, name) == present
        with sync_opened(database_url, new_model(), collection=name) as new:
            new.embeddings.fill()
        assert_vectors(vectors_of(looking, 2, name), present, new_model(), whole=True)
        stores["old"].embeddings.fill()
        check_old(looking, name, whole=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("keyword", ["bm25", "tsvector"])
def test_files_that_change_and_move_meanwhile(database_url, looking, tmp_path, writers_wait, *, full, keyword):
    for number in range(100 if full else 2):
        seed = random.randrange(2**32)
        name = f"files_{number}"
        folder = Folder(tmp_path / f"docs{number}", random.Random(seed))
        for _ in range(10):
            folder.happen()
        with sync_opened(database_url, old_model(), collection=name, keyword=keyword) as old:
            old.sync(folder.root)

            def between(folder=folder, old=old):
                if not writers_wait:
                    folder.happen()
                    old.sync(folder.root)

            with sync_opened(database_url, "none", collection=name) as changing:
                changing.embeddings.change(BetweenEmbedder(between))
            try:
                assert_vectors(vectors_of(looking, 2, name), texts_of(looking, name), new_model(), whole=True)
                check_old(looking, name, whole=True)
                folder.happen()
                old.sync(folder.root)
                check_old(looking, name, whole=True)
                texts = texts_of(looking, name)
                assert_vectors(vectors_of(looking, 2, name), texts, new_model(), whole=False)
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise
