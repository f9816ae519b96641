"""Static embeddings, and what every embedder has: keys, checked vectors, counts of cut texts."""

import math
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers

from semlex.embedding import base, static
from semlex.embedding.base import Embedder, EmbedderIdentity, check_vectors
from semlex.embedding.static import StaticEmbedder
from semlex.errors import MissingExtraError, ModelError, ModelMismatchError, ModelNotFoundError, ValidationError
from semlex.models import files
from semlex.models.tokenizer import CutTexts
from semlex.testing import HashEmbedder

UNKNOWN = "[UNK]"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@pytest.fixture(scope="module")
def embedder():
    with closing(StaticEmbedder()) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    """A model of whole words: whatever is not in its vocabulary is unknown."""
    folder = tmp_path_factory.mktemp("tiny-static") / "tiny"
    words = ["[UNK]", "red", "green", "blue", "stone"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.random.default_rng(7).normal(size=(len(words), 8)).astype(np.float16)
    StaticModel(vectors=vectors, tokenizer=tokenizer, normalize=True).save_pretrained(folder)
    return folder


def test_similar_texts_are_near_nothing_is_cut_and_weights_are_in_memory_once(embedder):
    for texts in [
        ["postgres database", "sql server", "banana bread"],
        ["how do I reset my password", "account login recovery", "chocolate cake recipe"],
        ["the striker scored a goal", "football match", "interest rates"],
        ["heart attack symptoms", "cardiac disease", "railway timetable"],
    ]:
        anchor, near, far = embedder.embed_documents(texts)
        assert anchor @ near > anchor @ far + 0.05
    # 512 tokens is the runtime's own limit; what stands behind it must count.
    assert np.abs(embedder.embed_query("cat " * 600 + "dog " * 600) - embedder.embed_query("cat " * 600)).max() > 0.01
    with closing(StaticEmbedder()) as one, closing(StaticEmbedder()) as other:
        assert one.dimensions == other.dimensions
        assert len(static._wheels) == 1
        for _ in range(2):
            one.close()
        assert other.embed_query("postgres database").any()
        with pytest.raises(ModelError, match="was closed"):
            one.embed_query("postgres database")
    texts = [f"row {i} of the table" for i in range(8)]

    def work(text):
        for _ in range(20):
            found = shared.embed_query(text)
            shared.count_tokens(texts)
        return found

    with closing(StaticEmbedder()) as shared, ThreadPoolExecutor(len(texts)) as threads:
        found = [*threads.map(work, texts)]
    assert np.abs(np.stack(found) - embedder.embed_documents(texts)).max() <= 1e-6


@pytest.fixture(scope="module")
def runtime():
    """The wheel's weights in the library that collections of earlier versions were embedded with."""
    from safetensors.numpy import load_file

    folder = static._wheel_folder().path
    vectors = load_file(folder / static.WHEEL_WEIGHTS[0])["embedding.weight"].astype(np.float32)
    tokenizer = Tokenizer.from_file(str(folder / static.WHEEL_TOKENIZER[0]))
    return StaticModel(vectors=vectors, tokenizer=tokenizer, normalize=False)


@pytest.fixture(scope="module")
def queries_only():
    """Has never embedded many texts at once, and shares no weights with who has: its rows are those of the file."""
    with closing(StaticEmbedder()) as loaded:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(static, "_wheels", {})
            loaded.embed_query("a")  # reads the weights
        yield loaded


@pytest.mark.slow
@example(["a stone bridge", "", "postgres database", " ", "\n\t ", "😀", "数据库", "\0", "\u0301"])
@given(st.lists(TEXTS | st.sampled_from(["<unk> stone", "<s>red</s>", "word " * 700]), min_size=1, max_size=8))
def test_vectors_are_those_of_model2vec_to_the_bit_beside_any_others(embedder, queries_only, runtime, texts):
    means = runtime.encode(texts, max_length=None, use_multiprocessing=False)
    expected = base.normalise(means)
    made = embedder.embed_documents(texts)
    assert (made.shape, made.dtype) == ((len(texts), 256), np.float32)
    assert embedder.embed_documents([]).shape == (0, 256)
    assert np.abs(np.linalg.norm(made, axis=1) - 1).max(initial=0) <= 1e-6
    for row, text in enumerate(texts):
        if means[row].any():
            assert np.array_equal(made[row], expected[row])
        assert np.array_equal(queries_only.embed_query(text), made[row])


def test_unknown_texts_get_one_fixed_vector_that_is_unlike_every_known_word(tiny_folder, tmp_path):
    with closing(StaticEmbedder(str(tiny_folder))) as tiny:
        vectors = tiny.embed_documents(["", "数据库", "😀 xyz", "red", "green stone", "red xyz"])
        assert np.array_equal(vectors[0], vectors[1])
        assert np.array_equal(vectors[0], vectors[2])
        mean = StaticModel.from_pretrained(tiny_folder, normalize=True).embedding.astype(np.float64).mean(axis=0)
        assert np.abs(vectors[0] + mean / np.linalg.norm(mean)).max() <= 1e-6
        # A word that is unknown does not change what the known ones say.
        assert np.abs(vectors[5] - vectors[3]).max() <= 1e-6
        assert tiny.dimensions == 8
    # A vocabulary that is centred exactly has no mean to be unlike.
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "up": 1, "down": 2}, unk_token=UNKNOWN))
    centred = np.array([[0, 0], [0, 1], [0, -1]], dtype=np.float32)
    StaticModel(vectors=centred, tokenizer=tokenizer, normalize=True).save_pretrained(tmp_path / "centred")
    with closing(StaticEmbedder(str(tmp_path / "centred"))) as embedder:
        assert embedder.embed_query("sideways").tolist() == [1.0, 0.0]


@given(TEXTS)
def test_offsets_and_counts_agree_with_the_text(embedder, text):
    offsets = embedder.token_offsets(text)
    assert offsets.dtype == np.int64
    assert offsets.shape == (int(embedder.count_tokens([text])[0]), 2)
    assert (np.diff(offsets, axis=0) >= 0).all()
    covered = {i for start, end in offsets.tolist() for i in range(start, end)}
    assert covered == set(range(len(text)))


def test_identity_and_models_that_are_not_there(embedder, tiny_folder, tmp_path):
    assert isinstance(embedder, Embedder)
    assert embedder.identity.key == "wordllama/l2_supercat_256@0.4.0.post1/256/mean/unit"
    assert embedder.counter_name == "tokenizer/93248f2a9ec36c7b"
    tiny = StaticEmbedder(str(tiny_folder))
    assert tiny.identity.key.startswith("tiny@sha256:")
    copy = shutil.copytree(tiny_folder, tmp_path / "elsewhere" / "tiny")
    assert StaticEmbedder(str(copy)).identity.key == tiny.identity.key
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert StaticEmbedder(str(copy)).identity.key != tiny.identity.key
    with pytest.raises(ModelNotFoundError, match="local cache of the hub; hub not asked"):
        StaticEmbedder("semlex/no-such-model")
    with pytest.raises(ModelNotFoundError, match="has no revision"):
        StaticEmbedder(str(tiny_folder), revision="main")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"cannot be loaded from .* as a model2vec model"):
        StaticEmbedder(str(tmp_path)).embed_query("a")
    for call in (embedder.embed_documents, embedder.count_tokens):
        with pytest.raises(ValidationError, match="row 1: text holds half of a surrogate pair"):
            call(["fine", "\ud800"])
    with pytest.raises(ValidationError, match="half of a surrogate pair"):
        embedder.token_offsets("\ud800")


@pytest.mark.parametrize("name", ["WHEEL_WEIGHTS", "WHEEL_TOKENIZER"])
def test_a_file_that_is_not_the_pinned_one_is_refused(monkeypatch, name):
    file, _ = getattr(static, name)
    monkeypatch.setattr(static, "_wheels", {})
    monkeypatch.setattr(static, name, (file, "0" * 64))
    changed = StaticEmbedder()
    with pytest.raises(ModelError, match=r"has SHA-256 [0-9a-f]{16}…, expected 0{16}….*--force-reinstall"):
        changed.embed_query("a")
    monkeypatch.setattr(static, name, (f"{file}.gone", "0" * 64))
    with pytest.raises(ModelError, match="is missing or empty"):
        changed.embed_query("a")
    monkeypatch.setattr(static, "version", lambda _: "9.9")
    with pytest.raises(ModelError, match=r"needs wordllama 0\.4\.0\.post1, found 9\.9"):
        StaticEmbedder()


def test_a_package_that_is_missing_is_named(monkeypatch, tiny_folder):
    find = static.find_spec
    for package, model in (("wordllama", "static"), ("model2vec", str(tiny_folder))):
        for module in (static, files):
            monkeypatch.setattr(module, "find_spec", lambda name, gone=package: None if name == gone else find(name))
        with pytest.raises(MissingExtraError, match=rf"{package}.*semlex\[local\]"):
            StaticEmbedder(model)


@given(st.lists(TEXTS, min_size=1, max_size=8), st.integers(2, 300))
def test_the_fake_embedder_is_an_embedder(texts, dimensions):
    fake = HashEmbedder(dimensions)
    assert isinstance(fake, Embedder)
    vectors = fake.embed_documents(texts)
    assert vectors.shape == (len(texts), fake.dimensions)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() <= 1e-6
    assert np.array_equal(np.stack([fake.embed_query(text) for text in texts]), vectors)
    assert fake.token_offsets(texts[0]).shape == (fake.count_tokens(texts)[0], 2)


def test_the_fake_embedder_is_the_same_everywhere():
    fake = HashEmbedder(64)
    vectors = fake.embed_documents(["red stone", "Stone, red!", "red brick", "blue sky"])
    assert np.allclose(vectors[0], vectors[1])
    assert vectors[0] @ vectors[2] > vectors[0] @ vectors[3] + 0.2
    known = [-0.12130342, -0.06862465, 0.18334009]
    assert np.abs(fake.embed_query("red")[:3] - known).max() <= 1e-6


NOTEBOOK = """
import sys, types, warnings
shell = types.SimpleNamespace()
sys.modules["ipykernel.zmqshell"] = sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython"].get_ipython = lambda: shell
sys.modules["ipywidgets"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from semlex.embedding.static import StaticEmbedder
    from semlex.models.files import find_cached
    StaticEmbedder().embed_query("text")
    StaticEmbedder(sys.argv[1]).embed_query("text")
    find_cached("somebody/something")
assert "tqdm.auto" in sys.modules
print([str(one.message) for one in caught])
"""


@pytest.mark.slow
def test_a_notebook_without_widgets_is_told_nothing_of_them(tiny_folder):
    told = subprocess.run([sys.executable, "-c", NOTEBOOK, tiny_folder], capture_output=True, text=True, check=True)
    assert "IProgress" not in told.stdout + told.stderr


def test_keys_and_vectors():
    base = EmbedderIdentity("org/model", "abc", 64, "task", "last-token", normalised=True)
    changes = [("model", "org/other"), ("revision", "abd"), ("dimensions", 32), ("instruction", "other task")]
    changes += [("instruction", None), ("pooling", "mean"), ("normalised", False)]
    variants = [replace(base, **{name: value}) for name, value in changes]
    assert len({identity.key for identity in [base, *variants]}) == len(variants) + 1
    # Stored with collections: a change here makes every stored collection another model's.
    assert base.key == "org/model@abc/64/last-token/unit/task:0ebb429fa86d"
    checked = check_vectors(np.asfortranarray(np.eye(3, dtype=np.float64)), rows=3, dimensions=3, model="m")
    assert (checked.dtype, checked.flags.c_contiguous) == (np.float32, True)
    raw = np.array([[2.0, 0.0]], dtype=np.float32)
    assert np.array_equal(check_vectors(raw, rows=1, dimensions=2, model="m", normalised=False), raw)
    for vectors, error, message in [
        ([[1.0, 0.0], [math.nan, 0.0]], ModelError, "vector of row 1 is not finite"),
        ([[math.inf, 0.0], [math.inf, 0.0]], ModelError, r"vector of row 0 \(and 1 more\) is not finite"),
        ([[1.0, 0.0], [0.0, 0.0]], ModelError, "vector of row 1 is all zero"),
        ([[1.0, 0.0], [1.0, 1.0]], ModelError, "vector of row 1 is not of norm 1"),
        ([[1.0, 0.0]], ModelError, r"shape \(1, 2\) for 2 texts"),
        ([1.0, 0.0], ModelError, r"shape \(2,\) for 2 texts"),
        ([[1.0], [1.0]], ModelMismatchError, "dimension 1; expected 2"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            check_vectors(np.array(vectors, dtype=np.float32), rows=2, dimensions=2, model="m")


def test_cut_texts_are_told_enough_and_not_too_much(caplog):
    texts = CutTexts("texts", "org/model")
    texts.add(0, 0, "max_length=128 tokens")
    texts.add(20, 0, "max_length=128 tokens")
    assert (texts.count, caplog.messages) == (0, [])
    texts = CutTexts("texts", "org/model")
    for _ in range(60):
        texts.add(40, 20, "max_length=128 tokens")
    assert texts.count == 1200
    assert caplog.messages == [
        f"{found} texts for org/model so far did not fit into max_length=128 tokens and were cut"
        for found in ("20 of 40", "200 of 400")
    ]
    caplog.clear()
    texts = CutTexts("texts", "org/model")
    for found, cut in ((1, 1), (8, 8), (1_000, 0)):  # ten times the first is reached only by texts that are cut
        texts.add(found, cut, "x")
    assert len(caplog.messages) == 1
    texts.add(1, 1, "x")
    assert caplog.messages[1].startswith("10 of 1010 texts")
