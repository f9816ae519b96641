"""Encodings: UTF-8 and UTF-16 are read, others are told, and read when that is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.loaders.base import LoadError, LoadOptions
from semlex.ingest.loaders.decoding import decode

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


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff")))
def test_utf_8_and_utf_16_need_no_guess(text: str) -> None:
    for data in (text.encode(), text.encode("utf-8-sig"), text.encode("utf-16")):
        assert decode(data, LoadOptions()) == (text, None)


@pytest.mark.parametrize("encoding", TEXTS)
def test_another_encoding_is_told_and_read_on_request(encoding: str) -> None:
    data = TEXTS[encoding].encode(encoding)
    with pytest.raises(LoadError, match=r"it looks like \S+: convert the file .*--detect-encoding") as refused:
        decode(data, LoadOptions())
    assert refused.value.code == "not_utf8"
    text, guessed = decode(data, GUESSING)
    assert text == TEXTS[encoding]
    assert guessed is not None
    assert guessed in str(refused.value)


def test_what_is_like_nothing_is_refused() -> None:
    with pytest.raises(LoadError, match="like no other encoding"):
        decode(b"caf\xe9", GUESSING)  # too short to tell
    with pytest.raises(LoadError, match="NUL"):
        decode(b"\0" + bytes(range(256)) * 4, GUESSING)
