"""Token ids, counts and offsets of the Rust core are those of the tokenizers library, for every text."""

import gzip
import itertools
import json
import logging
import random
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from semlex import _core
from semlex.errors import MissingExtraError, ModelError
from semlex.models.files import ModelFolder
from semlex.models.tokenizer import open_tokenizer
from tests.support import tokenizers_on_disk as on_disk
from tests.support.folders import ROOT, documentation
from tests.support.tokenizer_twins import assert_equal, pair

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
MIXED = [st.text(pool, max_size=6) for pool in on_disk.POOLS]
ODD_TEXT = st.lists(st.one_of(st.sampled_from(on_disk.WORDS), *MIXED), max_size=8).map("".join)
MODEL, PROCESSOR = (json.loads(on_disk.content())[part] for part in ("model", "post_processor"))
MERGES = MODEL["merges"]


@pytest.fixture(scope="module")
def two():
    return pair(on_disk.content())


@pytest.fixture(scope="module")
def two_as_text():
    return pair(on_disk.content(), as_text=True)


@pytest.mark.slow
@pytest.mark.parametrize("entries", [300, 1500, 8000])
def test_generated_texts(entries, two_as_text, full):
    """A million texts in all, or a hundredth of that; others for every tokenizer."""
    engines = pair(on_disk.content(entries))
    texts = on_disk.generated_texts(entries, 350_000 if full else 3_500)
    for number, block in enumerate(iter(lambda: list(itertools.islice(texts, 1000)), [])):
        assert_equal(engines, block, offsets=number % 5 == 0)
        assert_equal(two_as_text, block, offsets=number % 50 == 0)


@pytest.mark.slow
def test_every_character(two, full):
    """Alone, between letters, and behind white space; a random fifth of them, unless all are asked for."""
    step, high_step = (1, 1) if full else (5, 997)
    first = random.randrange(step)
    codes = [*range(first, 0xD800, step), *range(0xE000 + first, 0x32400, step), *range(0x32400, 0x110000, high_step)]
    for start in range(0, len(codes), 64):
        block = [chr(code) for code in codes[start : start + 64]]
        # A digit is a piece of its own: what stands between digits stands alone.
        assert_equal(two, ["0".join(block), "0".join(f"x{it}x\t{it}" for it in block)], offsets=start % 6400 == 0)


@pytest.mark.slow
def test_every_composition(two):
    characters = map(chr, (*range(0xE000, 0x30000), *range(0xD800)))
    composed = [*filter(unicodedata.decomposition, characters), *map(chr, range(0xAC00, 0xD7A4, 7))]
    texts = []
    for character in composed:
        parts = unicodedata.normalize("NFD", character)
        texts += [parts, parts[::-1], f"x{parts}\u0301\u0323{character}y", f"{parts[0]}\u0316{parts[1:]}"]
    assert_equal(two, texts)


def test_later_compositions_long_pieces_threads_and_refused_arguments(two):
    # Later versions of Unicode compose these; the tokenizers library has the tables of an earlier one.
    parts = "\U00011935\U00011930"
    assert unicodedata.normalize("NFC", parts) != parts
    assert_equal(two, [parts])
    assert len(two[0].token_offsets(parts)) == len(parts.encode())
    texts = ["-" * 100_000, "a" * 100_000, " " * 50_000 + "x", "\n" * 1000, "ab" * 20_000, "漢" * 5_000, "🏽" * 3000]
    texts += ["x" * length for length in range(85, 110)]
    assert_equal(two, texts, offsets=False)
    ours, _ = two
    texts = list(on_disk.generated_texts(9, 400))
    expected = ours.encode(texts).ids.tolist()
    with ThreadPoolExecutor(4) as pool:
        assert all(row.ids.tolist() == expected for row in pool.map(lambda _: ours.encode(texts), range(12)))
    tokenizer = _core.BpeTokenizer(on_disk.content())
    with pytest.raises(ValueError, match="most"):
        tokenizer.encode([], head=[], tail=[], most=-1)
    for call in (tokenizer.count, lambda texts: tokenizer.offsets(texts[0])):
        with pytest.raises(UnicodeEncodeError):
            call(["a\ud800"])
        with pytest.raises(TypeError):
            call([1])


@given(texts=st.lists(st.one_of(TEXT, ODD_TEXT), max_size=6))
def test_a_batch_is_its_texts_one_by_one(two, texts):
    assert_equal(two, texts)
    ours, _ = two
    assert [row.tolist() for row in ours.ids(texts)] == [ours.ids([text])[0].tolist() for text in texts]
    for text in texts:
        offsets = ours.token_offsets(text)
        assert offsets.shape == (int(ours.count_tokens([text])[0]), 2)
        assert (np.diff(offsets, axis=0) >= 0).all()
        assert (offsets[:, 0] < offsets[:, 1]).all()
        assert offsets.max(initial=0) <= len(text)


@given(texts=st.lists(ODD_TEXT, max_size=6), head=st.lists(st.integers(0, 99), max_size=3), most=st.integers(0, 9))
def test_rows_between_fixed_ids(two, texts, head, most):
    found, expected = (engine.encode(texts, head=head, tail=head[:1], most=most) for engine in two)
    for name in ("ids", "offsets", "cut"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()
        assert getattr(found, name).dtype == np.int64


FLAGS = ["single_word", "lstrip", "rstrip", "normalized", "special"]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", range(2 ** len(FLAGS)))
def test_added_tokens_with_every_flag(chosen, full):
    flags = {flag: bool(chosen >> place & 1) for place, flag in enumerate(FLAGS)}
    content = on_disk.with_added_tokens(*SPELLINGS, **flags)
    engines = pair(content)
    texts = ["".join(parts) for parts in itertools.product(AROUND, SPELLINGS, AROUND)]
    many = ["".join(parts) for parts in itertools.permutations([*SPELLINGS, " ", "a"], 4)]
    for both in (engines, pair(content, as_text=True)):
        assert_equal(both, texts)
        assert_equal(both, many, offsets=full)
    assert [engines[0].token_id(token) for token in SPELLINGS] == [engines[1].token_id(token) for token in SPELLINGS]


SPELLINGS = ["[A]", "[A]B", "A]Bcd", "caf\u00e9", "e\u0301\u0323", "of"]
AROUND = ["", "a", "_", " ", "\t\u3000", "<think>", ".", "\u0301", " cafe\u0301\n"]


def test_files_of_other_kinds_are_named(tmp_path):
    for spellings, flags, reason in [
        (["the", "the"], {}, "same spelling"),
        (["\u00e9", "e\u0301"], {"normalized": True}, "same spelling"),
        (["<x>", "\n\n"], {"rstrip": True}, "begins with white space"),
    ]:  # fmt: skip
        with pytest.raises(NotImplementedError, match=reason):
            _core.BpeTokenizer(on_disk.with_added_tokens(*spellings, **flags))
    for changes, reason in UNSUPPORTED:
        with pytest.raises(NotImplementedError, match=reason):
            _core.BpeTokenizer(on_disk.edited(changes))
    for content in [
        *(b"", b"{", b"[]", b"\xff", b"{}", b"[" * 10**6, on_disk.content()[:-9]),
        *(on_disk.edited({"model.merges": [merge]}) for merge in (["a"], "a b c")),
        on_disk.edited({"model.vocab": {"a": -1}}),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match="malformed"):
            _core.BpeTokenizer(content)
        (tmp_path / "tokenizer.json").write_bytes(content)
        with pytest.raises(ModelError, match="cannot be read as a tokenizer"):
            open_tokenizer(ModelFolder("some/model", "1", tmp_path))


def unreachable_word():
    """A vocabulary with an entry that no merges lead to."""
    number = max(MODEL["vocab"].values()) + 1000
    return {"model.vocab": {**MODEL["vocab"], "Ġunreachably": number, "not bytes": number + 1}, "added_tokens": []}


def test_other_files_of_the_kind_and_their_ends():
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    for changes in [
        {"normalizer": None}, {"post_processor": None}, {"padding": None, "truncation": truncation},
        {"model.dropout": 0.0, "model.unk_token": "<|endoftext|>", "model.byte_fallback": True, "model.fuse_unk": True},
        {"model.continuing_subword_prefix": "", "model.end_of_word_suffix": ""},
        unreachable_word(), {**unreachable_word(), "model.ignore_merges": True},
        *({"model.merges": merges} for merges in ([], MERGES[::-1], MERGES * 2, [*map(" ".join, MERGES)])),
        {"model.merges": ["#version: 0.2", *map(" ".join, MERGES)]},
    ]:  # fmt: skip
        texts = [*on_disk.generated_texts(8, 300), " unreachably", "unreachably so unreachably", "x" * 300]
        assert_equal(pair(on_disk.edited({**changes, "post_processor": None})), texts)
    ends = PROCESSOR["processors"][1]
    begins = {**ends, "single": ends["single"][::-1]}
    for processor in (ends, begins, {"type": "Sequence", "processors": [begins]}, None):
        ours, theirs = pair(on_disk.edited({"post_processor": processor}))
        assert ours.frame() == theirs.frame()
    (ours, _) = pair(on_disk.content())
    assert ours.frame() == ([], [ours.token_id(on_disk.END_TOKEN)])
    assert ours.token_id("no such token") is None


UNSUPPORTED = [
    ({"model.type": "WordPiece"}, "model type WordPiece, expected BPE"),
    ({"model.dropout": 0.5}, "dropout 0.5, expected 0"),
    ({"model.continuing_subword_prefix": "##"}, "subword_prefix"),
    ({"model.end_of_word_suffix": "</w>"}, "word_suffix"),
    ({"model.merges": [["no such token", "a"]]}, r"merges\[0\].*not in the vocabulary"),
    ({"model.vocab": {"a": 0}, "model.merges": []}, "256 bytes"),
    ({"model.vocab": {"a": 0, "b": 0}, "model.merges": []}, "the same id"),
    ({"model.vocab": {"a": 2**31}, "model.merges": []}, "token id 2147483648, expected below 16777216"),
    ({"normalizer": {"type": "NFKC"}}, "normalizer NFKC"), ({"pre_tokenizer": None}, "pre_tokenizer null"),
    ({"pre_tokenizer.pretokenizers": []}, "0 steps, expected 2"),
    ({"pre_tokenizer.pretokenizers.0.pattern.Regex": r"\p{L}+"}, "Qwen's pattern"),
    ({"pre_tokenizer.pretokenizers.0.pattern": {"String": on_disk.PATTERN}}, "Qwen's pattern"),
    ({"pre_tokenizer.pretokenizers.0.behavior": "Removed"}, "Qwen's pattern"),
    ({"pre_tokenizer.pretokenizers.0.invert": True}, "Qwen's pattern"),
    *(({f"pre_tokenizer.pretokenizers.1.{part}": True}, "ByteLevel") for part in ("add_prefix_space", "use_regex")),
    ({"post_processor.processors.0.trim_offsets": True}, "trim_offsets"),
    ({"post_processor.processors.0": PROCESSOR}, "Sequence inside a Sequence"),
    ({"post_processor.processors.0": PROCESSOR["processors"][1]}, "more than one TemplateProcessing"),
    ({"post_processor": {"type": "RobertaProcessing"}}, "RobertaProcessing"),
    ({"post_processor.processors.1.single": []}, "0 times"),
    ({"post_processor.processors.1.special_tokens": {}}, "no ids"),
    ({"added_tokens.0.id": 7}, r"id 7 of added_tokens\[0\], expected \d+ from"),
    ({"version": "2.0"}, r'version "2\.0", expected "1\.0"'),
]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=3))
def test_damaged_files_are_refused_or_read_alike(damages):
    content = on_disk.content(300)
    for place, damage in damages:
        place %= len(content)  # noqa: PLW2901
        content = content[:place] + damage + content[place + 1 :]
    try:
        ours = _core.BpeTokenizer(content)
    except (NotImplementedError, ValueError):
        return
    try:
        theirs = Tokenizer.from_buffer(content)
    except ValueError:  # parts that no encoder needs, such as the decoder, are not looked at here
        return
    for text in ("a text of <think> words", "Größe e\u0301 12 "):
        assert ours.encode([text], head=[], tail=[])[0].tolist() == theirs.encode(text, add_special_tokens=False).ids


def test_the_library_reads_what_the_core_does_not(tmp_path, caplog, monkeypatch):
    folder, file = ModelFolder("some/model", "1", tmp_path), tmp_path / "tokenizer.json"
    other = on_disk.edited({"normalizer": {"type": "NFKC"}})
    file.write_bytes(other)
    caplog.set_level(logging.INFO, "semlex")
    tokenizer = open_tokenizer(folder)
    assert tokenizer.engine == "tokenizers: normalizer NFKC"
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["normalizer NFKC"]
    assert tokenizer.count_tokens(["ﬁ", ""]).tolist() == [len(tokenizer.token_offsets("ﬁ")), 0]
    file.write_bytes(on_disk.content())
    opened = open_tokenizer(folder)
    assert (opened.engine, opened.counter_name[:10]) == ("rust", "tokenizer/")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert open_tokenizer(folder).engine == "rust"
    file.write_bytes(other)
    with pytest.raises(MissingExtraError, match="normalizer NFKC"):
        open_tokenizer(folder)
    file.unlink()
    with pytest.raises(ModelError, match="no tokenizer"):
        open_tokenizer(folder)


def files_of(folder):
    """Every text of a folder: lines of JSON lose their braces, other files stand as they are."""
    texts = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        whole = content.decode(errors="replace")
        if ".jsonl" in path.name:
            rows = [json.loads(line) for line in whole.splitlines() if line.strip()]
            texts += [value for row in rows for value in row.values() if isinstance(value, str)]
        else:
            texts.append(whole)
    return texts


@pytest.mark.slow
def test_texts_of_a_folder(request):
    """Own texts: ``--texts FOLDER``, with the tokenizer of ``--tokenizer FILE`` or one of 8,000 entries."""
    folder, file = request.config.getoption("--texts"), request.config.getoption("--tokenizer")
    engines = pair(Path(file).read_bytes() if file else on_disk.content(8000))
    pages = (ROOT / "README.md", documentation("settings.md"))
    texts = files_of(Path(folder)) if folder else [path.read_text(encoding="utf-8") for path in pages]
    assert texts
    assert_equal(engines, texts)
    print(f"{len(texts):,} texts, {int(engines[0].count_tokens(texts).sum()):,} tokens")  # noqa: T201
