"""Options that a collection was made with: refused where they are said and differ, told where they are defaults."""

import psycopg
import pytest

from semlex import CollectionOptions
from semlex.errors import CollectionSettingsError, ConfigurationError
from semlex.options.collection import BUILT_IN, KINDS, ChunkSettings
from semlex.options.declare import declared
from semlex.retriever.options import CollectionKeys
from semlex.types.documents import Document
from tests.support.retrievers import sync_opened

# Of each option: what the collection is made with, and another value.
VALUES = {
    "language": ("german", "english"),
    "keyword": ("bm25", "tsvector"),
    "stop_words": (False, True),
    "distance": ("l2", "cosine"),
    "vector_storage": ("halfvec", "vector"),
    "with_context": (False, True),
    "partitions": (2, 0),
    "chunk_tokens": (100, 101),
    "overlap_tokens": (10, 11),
    "min_tokens": (20, 21),
}
MADE, OTHERS = ({name: values[place] for name, values in VALUES.items()} for place in (0, 1))


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "handbuch" / "seite.md"
    path.parent.mkdir()
    path.write_text("# Schlüssel\n\nDie Häuser sind offen.\n", encoding="utf-8")
    return path


def test_every_option_of_a_collection_is_none_unless_said():
    assert declared(CollectionKeys).keys() == KINDS.keys()
    assert CollectionOptions() == CollectionOptions(**dict.fromkeys(KINDS))
    assert VALUES.keys() == KINDS.keys()
    assert BUILT_IN.keys() <= KINDS.keys()


def test_what_is_said_and_differs_is_refused(database_url, page):
    with sync_opened(database_url, **MADE) as retriever:
        retriever.index(page)
    for name in KINDS:
        with pytest.raises(CollectionSettingsError) as caught:
            sync_opened(database_url, **{name: OTHERS[name]}).initialize()
        error = caught.value
        assert (error.option, error.asked, error.stored) == (name, OTHERS[name], MADE[name])
        for part in (name, repr(MADE[name]), repr(OTHERS[name]), "default_collection", "leave the option out"):
            assert part in str(error)
    # What is the same opens, and defaults are for new collections.
    differing = {name: (OTHERS[name], MADE[name]) for name in KINDS}
    for options, unused in (
        *(({}, {}), (MADE, {}), ({"language": "de"}, {}), ({"defaults": MADE}, {})),
        ({"defaults": OTHERS}, differing),
    ):
        with sync_opened(database_url, **options) as retriever:
            assert (retriever.count(), retriever.unused_defaults) == (1, unused)


def test_defaults_make_a_new_collection_and_what_is_said_comes_first(database_url, page):
    with sync_opened(database_url, defaults=MADE, language="french") as retriever:
        retriever.index(page)
        settings, embedding = retriever.info.settings, retriever.info.embedding
    assert (settings.language, settings.stop_words, settings.distance) == ("french", False, "l2")
    assert (settings.with_context, settings.chunk_settings) == (False, ChunkSettings(100, 10, 20))
    assert embedding.storage == "halfvec"
    # Defaults of splitting never refuse what is said.
    defaults = {"chunk_tokens": 500, "overlap_tokens": 100, "min_tokens": 200}
    with sync_opened(database_url, collection="split", chunk_tokens=20, defaults=defaults) as retriever:
        retriever.index(page)
        assert retriever.info.settings.chunk_settings == ChunkSettings(20, 9, 10)


def test_chunk_settings_are_those_of_the_first_file(database_url, page):
    with sync_opened(database_url) as retriever, sync_opened(database_url, defaults={"chunk_tokens": 99}) as other:
        retriever.add_documents([Document("not cut", id="a")])
        assert retriever.info.settings.chunk_settings is None
        assert other.count() == 1
        retriever.index(page, chunk_tokens=60)
        assert retriever.index(page).unchanged == 1
        with pytest.raises(CollectionSettingsError, match="semlex maintain rechunk --collection default_collection"):
            retriever.index(page, chunk_tokens=61)
        assert other.index(page).unchanged == 1  # which was opened before there were files
        assert other.unused_defaults == {"chunk_tokens": (99, 60)}
    with sync_opened(database_url) as retriever:
        assert retriever.info.settings.chunk_settings == ChunkSettings(60, 29, 15)
        assert retriever.index(page).unchanged == 1


REFUSED = [
    ({"language": 5}, "language must be a str; got an int"),
    ({"stop_words": "yes"}, "stop_words must be a bool; got a str"),
    ({"chunk_tokens": True}, "chunk_tokens must be an int; got a bool"),
    ({"chunk_tokens": 5}, "chunk_tokens must be between 16 and 2,000; got 5"),
    ({"chunk_tokens": 100, "overlap_tokens": 50}, "overlap_tokens must be between 0 and 49; got 50"),
    ({"chunk_tokens": 100, "min_tokens": 51}, "min_tokens must be between 0 and 50; got 51"),
    ({"min_tokens": 251}, "min_tokens must be between 0 and 250; got 251"),
    ({"min_tokens": "32"}, "min_tokens must be an int; got a str"),
    ({"partitions": 1}, "partitions must be between 2 and 64; got 1"),
    ({"distance": "cosin"}, "distance must be one of cosine"),
    ({"vector_storage": "bit"}, "vector_storage must be one of vector"),
    ({"keyword": "bm52"}, "keyword must be one of bm25"),
    ({"language": "klingon"}, "klingon"),
    ({"defaults": {"langage": "german"}}, "defaults: unknown option 'langage'"),
    ({"defaults": {"chunk_tokens": 5}}, "chunk_tokens must be"),
]


def test_what_is_refused_makes_nothing(bare_database_url):
    for options, message in REFUSED:
        with pytest.raises(ConfigurationError, match=message):
            sync_opened(bare_database_url, **options).initialize()
    with psycopg.connect(bare_database_url) as connection:
        assert connection.execute("SELECT to_regnamespace('semlex')").fetchone() == (None,)
