"""Encodings, and what a database does not store: refused with its place, or repaired when that is asked for."""

import codecs
import json
import re
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.ingest.loaders.base import LoadedDocument, LoadError, LoadOptions, Record
from semlex.ingest.loaders.decoding import decode, repaired_document, storable, storable_document

# ruff: noqa: RUF001 - letters of other alphabets are what this is about
TEXTS = {
    "windows-1252": "Un café au lait, déjà vu: la façade naïve de l’hôtel.",
    "cp1251": "Привет, это обычный русский текст для проверки кодировки.",
    "cp1253": "Αυτό είναι ένα κείμενο στα ελληνικά για δοκιμή.",
    "cp1250": "Příliš žluťoučký kůň úpěl ďábelské ódy na všech stranách.",
    "shift_jis": "これは日本語の文章です。文字コードを調べます。" * 2,
    "gb18030": "这是一个普通的中文文本，用来检查编码。" * 2,
}
GUESSING = LoadOptions(detect_encoding=True)
REPAIRING = LoadOptions(on_bad_text="repair")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff")))
def test_utf_8_and_utf_16_need_no_guess(text):
    big_endian = codecs.BOM_UTF16_BE + text.encode("utf-16-be")
    for data in (text.encode(), text.encode("utf-8-sig"), text.encode("utf-16"), big_endian):
        assert decode(data, LoadOptions()) == (text, None, 0)
        assert decode(data, REPAIRING) == (text, None, 0)


def test_encodings_are_told_guessed_or_refused():
    for encoding, plain in TEXTS.items():
        data = plain.encode(encoding)
        with pytest.raises(LoadError, match=r"it looks like \S+: convert the file .*--detect-encoding") as refused:
            decode(data, LoadOptions())
        assert refused.value.code == "not_utf8"
        text, guessed, repaired = decode(data, GUESSING)
        assert (text, repaired) == (plain, 0)
        assert guessed is not None
        assert guessed in str(refused.value)
    with pytest.raises(LoadError, match="no other encoding was recognised"):
        decode(b"caf\xe9", GUESSING)  # too short to tell
    with pytest.raises(LoadError, match="NUL"):
        decode(b"\0" + bytes(range(256)) * 4, GUESSING)
    both = LoadOptions(detect_encoding=True, on_bad_text="repair")
    data = TEXTS["windows-1252"].encode("cp1252")
    assert decode(data, both) == (TEXTS["windows-1252"], "windows-1252", 0)
    beginning = TEXTS["cp1251"].encode("cp1251") * 6_000  # the guess is made from it
    text, encoding, repaired = decode(beginning + b"\x98" * 3, both)  # which has no such letter
    assert (text.count("\ufffd"), encoding, repaired) == (3, "cp1251", 3)
    for data, code in [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), "binary"),
        ("wide".encode("utf-16-le"), "binary"),
        (TEXTS["cp1251"].encode("cp1251"), "not_utf8"),
    ]:  # fmt: skip
        with pytest.raises(LoadError) as refused:
            decode(data, REPAIRING)
        assert refused.value.code == code


def test_without_the_extra_an_encoding_is_not_detected(monkeypatch):
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    western, russian = (TEXTS[name].encode(name) for name in ("windows-1252", "cp1251"))
    assert decode(western, GUESSING).text == TEXTS["windows-1252"]
    for options in (LoadOptions(), GUESSING, LoadOptions(detect_encoding=True, on_bad_text="repair")):
        with pytest.raises(LoadError, match=r"iconv.*pip install 'semlex\[files\]'") as refused:
            decode(russian, options)
        assert refused.value.code == "not_utf8"


# --- repairs ----------------------------------------------------------------------------------------------------------
def repaired_slowly(data, encoding):
    """The text, and how often something had to be put, as the decoder itself tells."""
    count = 0

    def put(error):
        nonlocal count
        assert isinstance(error, UnicodeDecodeError)
        count += 1
        return "\ufffd", error.end

    codecs.register_error("semlex-test", put)
    text = data.decode(encoding, "semlex-test").removeprefix("\ufeff")
    return text.replace("\0", "\ufffd"), count + text.count("\0")


@given(
    pieces=st.lists(
        st.one_of(st.sampled_from(["", "a", "\ufffd", "é", "\0", "😀"]).map(str.encode), st.binary(max_size=3))
    ),
    encoding=st.sampled_from(["utf-8", "utf-16"]),
)
@example(pieces=[b"caf\xe9 au lait"], encoding="utf-8")
@example(pieces=[codecs.BOM_UTF8, b"ab\xffcd", b"one\0two"], encoding="utf-8")
@example(pieces=[b"a\0b\0\0\xd8c\0d\0", b"e"], encoding="utf-16")
@example(pieces=["already \ufffd: ".encode(), b"caf\xe9"], encoding="utf-8")
def test_a_repaired_text_has_a_mark_for_each_fault_and_all_the_rest(pieces, encoding):
    data = (codecs.BOM_UTF16_LE if encoding == "utf-16" else b"") + b"".join(pieces)
    if encoding == "utf-8" and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return
    text, count = repaired_slowly(data, encoding)
    if count > len(text) / 3:
        with pytest.raises(LoadError):
            decode(data, REPAIRING)
    else:
        assert decode(data, REPAIRING) == (text, None, count)


# --- what a database does not store -----------------------------------------------------------------------------------

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


def test_faulty_loaders_and_choices_are_refused():
    for loaded, code in [
        (LoadedDocument(b"bytes"), "loader_failed"), (LoadedDocument("x", title=5), "loader_failed"),
        (LoadedDocument("x", structure="wiki"), "loader_failed"),
        (LoadedDocument("x y", records=[Record(0, 1, structure="wiki")]), "loader_failed"),
        (LoadedDocument("x", metadata={"a": {1}}), "loader_failed"),
        (LoadedDocument("x", metadata={"a": float("nan")}), "loader_failed"),
        (LoadedDocument("x", pages=["one"]), "loader_failed"), (LoadedDocument("x", format="a\0"), "loader_failed"),
        (LoadedDocument("x", encoding="a\ud800"), "loader_failed"),
        (LoadedDocument("x", metadata={"a": "x" * (1 << 20)}), "metadata_too_large"),
    ]:  # fmt: skip
        for options in (LoadOptions(), REPAIRING):
            with pytest.raises(LoadError) as refused:
                storable_document(loaded, options)
            assert refused.value.code == code
    for value in ["", "ignore", "ERROR", None, True]:
        with pytest.raises(ConfigurationError, match="on_bad_text must be error, repair or skip"):
            LoadOptions(on_bad_text=value)
