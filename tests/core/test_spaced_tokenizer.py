"""Files of Llama 2's kind: ids, counts and offsets of the Rust core are those of the tokenizers library."""

import itertools
import json
import random
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from semlex.embedding.static import WHEEL, WHEEL_TOKENIZER
from semlex.models.files import ModelFolder
from semlex.models.tokenizer import open_tokenizer
from tests.core.test_tokenizer import MIXED, TEXT
from tests.support import tokenizers_on_disk as on_disk
from tests.support.tokenizer_twins import assert_equal, pair

SPACES = ["▁", " ", "  ", "\n", "\t", "▁▁", " ▁", "\u00a0", "\u3000"]
NAMES = ["<s>", "</s>", "<unk>", "<0x0A>", "<0x", "<s", "[CLS]"]
PIECES = [*SPACES, *NAMES, *on_disk.WORDS, "🏽", "漢字", "\u0301"]
ODD_TEXT = st.lists(st.one_of(st.sampled_from(PIECES), *MIXED), max_size=9).map("".join)
EDGES = [
    "", " ", "   ", "▁", "\n", "\t", "a", " a", "a ", "  a  b", "▁a▁ b", "\u0301", "e\u0301", "😀", "漢", "\u0378a",
    "\x00",
]  # fmt: skip


def wheel():
    """The file of the default static model."""
    return (Path(find_spec(WHEEL).submodule_search_locations[0]) / WHEEL_TOKENIZER[0]).read_bytes()


MODEL = json.loads(on_disk.spaced_content())["model"]


def edited(changes):
    return on_disk.edited(changes, on_disk.spaced_content())


FILES = {
    "wheel": wheel,
    "small": on_disk.spaced_content,
    "across spaces": lambda: on_disk.spaced_content(600, across_spaces=True),
    "without merges": lambda: edited({"model.merges": []}),
    "reversed": lambda: edited({"model.merges": MODEL["merges"][::-1]}),
    "twice": lambda: edited({"model.merges": [*MODEL["merges"], *MODEL["merges"][::-1]]}),
}


@pytest.fixture(scope="module", params=FILES)
def two(request):
    return pair(FILES[request.param]())


@pytest.fixture(scope="module", params=["wheel", "across spaces"])
def two_as_text(request):
    return pair(FILES[request.param](), as_text=True)


def test_edges_pieces_without_end_and_ids(two):
    assert_equal(two, EDGES)
    assert_equal(two, ["".join(parts) for parts in itertools.product([*EDGES, "<s>"], repeat=2)])
    texts = ["-" * 20_000, "a" * 20_000, " " * 20_000 + "x", "\n" * 3000, "ab" * 10_000, "漢字" * 3_000, "🏽" * 3000]
    texts += ["x" * length for length in range(85, 110)]
    assert_equal(two, texts, offsets=False)
    ours, theirs = two
    assert ours.frame() == theirs.frame()
    for token in ("<s>", "▁", "<0x0A>", "?!?!?!"):
        assert ours.token_id(token) == theirs.token_id(token)


@pytest.mark.slow
@given(texts=st.lists(st.one_of(TEXT, ODD_TEXT), max_size=6))
def test_a_batch(two, texts):
    assert_equal(two, texts)


@given(text=ODD_TEXT)
def test_names_of_tokens_as_text(two_as_text, text):
    assert_equal(two_as_text, [text, f"<s>{text}</s>"])


@pytest.mark.slow
@given(texts=st.lists(ODD_TEXT, max_size=4), head=st.lists(st.integers(0, 99), max_size=3), most=st.integers(0, 9))
def test_rows_between_fixed_ids(two, texts, head, most):
    found, expected = (engine.encode(texts, head=head, tail=head[:1], most=most) for engine in two)
    for name in ("ids", "offsets", "cut"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.slow
def test_generated_texts(two, full):
    texts = on_disk.generated_texts(7, 100_000 if full else 3_000)
    for block in iter(lambda: list(itertools.islice(texts, 1000)), []):
        assert_equal(two, block)


@pytest.mark.slow
def test_every_character(full):
    """Alone, between letters, and behind white space; a random fifth of them, unless all are asked for."""
    engines = pair(wheel())
    step = 1 if full else 5
    codes = range(random.randrange(step), 0x20000, step)
    characters = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    for start in range(0, len(characters), 64):
        block = characters[start : start + 64]
        assert_equal(engines, ["".join(block), " ".join(f"x{it}x {it}" for it in block)])


@pytest.mark.slow
def test_long_texts_without_a_space():
    letters = "".join(random.Random(5).choices("etaoinshrdlu", k=1 << 17))
    assert_equal(pair(wheel()), [letters, "=" * (1 << 16), " " * (1 << 16)], offsets=False)


def test_added_tokens():
    parts = ["[A]", "of", "▁x", "漢", " ", "a", "\n "]
    for flag in ("single_word", "lstrip", "rstrip", "special"):
        file = json.loads(on_disk.spaced_content())
        off = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        known = file["model"]["vocab"]
        numbers = itertools.count(len(known))
        for spelling in parts[:4]:
            number = known[spelling] if spelling in known else next(numbers)
            file["added_tokens"].append({**off, "id": number, "content": spelling, flag: True})
        engines = pair(json.dumps(file).encode())
        assert_equal(engines, ["".join(texts) for texts in itertools.product(parts, repeat=3)])


def without(token):
    return {name: number for name, number in MODEL["vocab"].items() if name != token}


def joined(left, right):
    """One merge, and what it needs."""
    return {"model.vocab": {**MODEL["vocab"], left + right: 1 << 20}, "model.merges": [[left, right]]}


UNSUPPORTED = [
    ({"normalizer.normalizers.0.prepend": "_"}, "normalizer Sequence"),
    ({"normalizer.normalizers.1.content": "_"}, "normalizer Sequence"),
    ({"normalizer.normalizers.1.pattern": {"Regex": " "}}, "normalizer Sequence"),
    ({"normalizer.normalizers": []}, "normalizer Sequence"),
    ({"normalizer": {"type": "Prepend", "prepend": "▁"}}, "normalizer Prepend"),
    ({"normalizer": None}, "pre_tokenizer null"),
    ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, "pre_tokenizer WhitespaceSplit, together with a normalizer"),
    ({"model.byte_fallback": False}, "without byte_fallback"),
    ({"model.ignore_merges": True}, "ignore_merges true"), ({"model.vocab": without("<0x41>")}, "256 bytes"),
    ({"model.vocab": without("▁"), "model.merges": []}, "without the token ▁"),
    (joined("<0x0A>", "a"), "token of a byte"), (joined("a", "<0x0A>"), "token of a byte"),
    ({"added_tokens.0.normalized": True}, "normalized true"), ({"model.dropout": 0.5}, "dropout 0.5, expected 0"),
]  # fmt: skip


def test_files_of_other_kinds_are_named(tmp_path, monkeypatch):
    for changes, reason in UNSUPPORTED:
        with pytest.raises(NotImplementedError, match=reason):
            _core.BpeTokenizer(edited(changes))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_bytes(on_disk.spaced_content())
    assert open_tokenizer(ModelFolder("some/model", "1", tmp_path)).engine == "rust"
