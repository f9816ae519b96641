"""What a database does not store: found wherever it stands in a document, and repaired when that is asked for."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.ingest.loaders.base import LoadedDocument, LoadError, LoadOptions, Record
from semlex.ingest.loaders.decoding import repaired_document, storable, storable_document

REPAIRING = LoadOptions(on_bad_text="repair")
BAD = re.compile("[\0\ud800-\udfff]")
texts = st.text(st.sampled_from("ab é😀\ufffd\0\ud800\udc00"), max_size=8)
values = st.recursive(
    st.one_of(texts, st.integers(), st.none(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
metadata = st.dictionaries(texts, values, max_size=3)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from strings(item)


def count_of(*found):
    return sum(len(BAD.findall(text)) for value in found for text in strings(value))


@given(value=values)
def test_any_value_is_repaired_character_by_character(value):
    repaired, count = storable(value, "here", REPAIRING)
    assert count == count_of(value)
    # A name may become that of another value.
    if len(list(strings(repaired))) == len(list(strings(value))):
        assert list(strings(repaired)) == [BAD.sub("\ufffd", text) for text in strings(value)]
    json.dumps(repaired, ensure_ascii=False).encode()
    if count:
        with pytest.raises(LoadError, match=r"here: a text holds .*--on-bad-text repair") as refused:
            storable(value, "here", LoadOptions())
        assert refused.value.code == "bad_text"
    else:
        assert storable(value, "here", LoadOptions()) == (value, 0) == (repaired, 0)


@given(text=texts, title=texts, own=metadata, titles=st.lists(texts, max_size=2), summary=texts)
def test_any_document_is_refused_or_repaired_in_its_place(text, title, own, titles, summary):
    record = Record(0, len(text), metadata=own, titles=titles, summary=summary)
    loaded = LoadedDocument(text, title=title, metadata=own, records=[record])
    bad = count_of(text, title, own, own, titles, summary)
    repaired = storable_document(loaded, REPAIRING)
    assert repaired == repaired_document(loaded)
    assert (repaired.text, repaired.title) == (BAD.sub("\ufffd", text), BAD.sub("\ufffd", title))
    assert repaired.repaired == bad
    assert storable_document(repaired, LoadOptions()) is repaired
    if bad:
        with pytest.raises(LoadError) as refused:
            storable_document(loaded, LoadOptions())
        assert refused.value.code == "bad_text"
    else:
        assert repaired is loaded


@pytest.mark.parametrize(("loaded", "code"), [
    (LoadedDocument(b"bytes"), "loader_failed"),
    (LoadedDocument("x", title=5), "loader_failed"),
    (LoadedDocument("x", structure="wiki"), "loader_failed"),
    (LoadedDocument("x y", records=[Record(0, 1, structure="wiki")]), "loader_failed"),
    (LoadedDocument("x", metadata={"a": {1}}), "loader_failed"),
    (LoadedDocument("x", metadata={"a": float("nan")}), "loader_failed"),
    (LoadedDocument("x", pages=["one"]), "loader_failed"),
    (LoadedDocument("x", format="a\0"), "loader_failed"),
    (LoadedDocument("x", encoding="a\ud800"), "loader_failed"),
    (LoadedDocument("x", metadata={"a": "x" * (1 << 20)}), "metadata_too_large"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_what_a_faulty_loader_makes_is_refused(loaded, code):
    for options in (LoadOptions(), REPAIRING):
        with pytest.raises(LoadError) as refused:
            storable_document(loaded, options)
        assert refused.value.code == code


@pytest.mark.parametrize("value", ["", "ignore", "ERROR", None, True])
def test_another_choice_is_refused(value):
    with pytest.raises(ConfigurationError, match="on_bad_text must be error, repair or skip"):
        LoadOptions(on_bad_text=value)
