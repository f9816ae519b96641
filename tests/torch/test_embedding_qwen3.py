import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from semlex.embedding.base import Embedder
from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder
from semlex.errors import ConfigurationError, ModelError, ModelMismatchError, ModelNotFoundError, ValidationError
from semlex.models.model_names import DEFAULT_INSTRUCTION
from tests.support import tiny_qwen3
from tests.support.watched_model import sizes_of_passes

# Lone surrogates are refused; everything else is text.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def opened(folder, **options):
    return Qwen3EmbeddingEncoder(str(folder), **{"device": "cpu", "max_length": 1024, "dtype": "float32", **options})


@pytest.fixture(scope="module")
def folder(embedder_folder):
    return embedder_folder


@pytest.fixture(scope="module")
def encoder(folder):
    return opened(folder)


@pytest.fixture(scope="module")
def card(folder):
    """The model card's recipe: left padding, last token, norm; in batches, or each text by itself."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

    def embed(texts, dimensions=None, *, padded=False):
        if not padded:
            return np.concatenate([embed([text], dimensions, padded=True) for text in texts])
        batch = tokenizer(texts, padding=True, truncation=True, max_length=1024, return_tensors="pt")
        with torch.no_grad():
            pooled = model(**batch).last_hidden_state[:, -1, :dimensions]
        return torch.nn.functional.normalize(pooled, p=2, dim=1).numpy()

    return embed


def instructed(query, instruction=DEFAULT_INSTRUCTION):
    return f"Instruct: {instruction}\nQuery:{query}"


@given(st.lists(st.builds(lambda text, times: text * times, TEXTS, st.integers(1, 20)), min_size=1, max_size=6))
def test_documents_equal_the_model_card_with_padding(encoder, card, texts):
    # The card's left padding shifts positions, and float32 angles of higher positions are coarser: against float64 the
    # padded card is off by up to 1.6e-6 per component here, we by 4e-7.
    assert np.abs(encoder.embed_documents(texts) - card(texts, padded=True)).max() <= 5e-6


@given(TEXTS)
def test_queries_equal_the_model_card(encoder, card, query):
    assert np.abs(encoder.embed_query(query) - card([instructed(query)])[0]).max() <= 1e-6


@pytest.mark.parametrize("query", ["how", " how", ":", "", "\n", "数据库", "Query", "!?", "1"])
def test_the_instruction_is_read_once_for_all_queries(folder, card, query, monkeypatch):
    sizes = sizes_of_passes(monkeypatch)
    one = opened(folder)
    one.embed_query("something else")
    sizes.clear()
    assert np.abs(one.embed_query(query) - card([instructed(query)])[0]).max() <= 1e-6
    (size,) = sizes
    assert size <= 2 + 2 * max(1, len(query.encode()))  # the colon, the query, the end token


def test_a_query_that_joins_the_end_of_the_instruction_is_read_whole(folder, card, monkeypatch):
    one = opened(folder)
    foreign = [*one._prompt_ids()[:-1].tolist(), 599]  # as if another vocabulary joined the last word and the query
    monkeypatch.setattr(one, "_prompt_ids", lambda: np.array(foreign))
    assert np.abs(one.embed_query("rows") - card([instructed("rows")])[0]).max() <= 1e-6


@pytest.mark.parametrize("attn", ["trimmed", "packed", "reference"])
def test_every_form_of_the_forward_pass_gives_the_same_vectors(folder, card, attn):
    texts = ["word " * 200, "", "a", "an index finds rows"]
    other = opened(folder, attn=attn)
    assert np.abs(other.embed_documents(texts) - card(texts)).max() <= 1e-6
    assert np.abs(other.embed_query("rows") - card([instructed("rows")])[0]).max() <= 1e-6


def threads_left():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("semlex-prefetch")]


def test_windows_change_nothing(folder, encoder, monkeypatch, caplog):
    texts = [f"{'word ' * ((7 * i) % 23)}{i}" for i in range(23)] + ["long " * 200]
    expected = encoder.embed_documents(texts)
    monkeypatch.setattr("semlex.embedding.qwen3.WINDOW_TEXTS", 5)
    assert np.abs(encoder.embed_documents(texts) - expected).max() <= 1e-6
    short = opened(folder, max_length=128)
    short.embed_documents(["long " * 200, *texts])
    assert caplog.messages == [f"2 of 25 texts for {folder} so far did not fit into max_length=128 tokens and were cut"]
    assert threads_left() == []


def test_tokens_of_the_next_window_are_made_while_the_model_works(folder, monkeypatch):
    monkeypatch.setattr("semlex.embedding.qwen3.WINDOW_TEXTS", 1)
    one = opened(folder)
    made = [threading.Event() for _ in range(3)]
    make, run = one._token_rows, one._transformer.last_hidden
    numbers = iter(range(3))

    def token_rows(texts):
        rows = make(texts)
        made[int(texts[0])].set()
        return rows

    def last_hidden(rows, **options):
        number = next(numbers)
        assert made[min(number + 1, 2)].wait(60)  # would never come if the thread waited for the model
        return run(rows, **options)

    monkeypatch.setattr(one, "_token_rows", token_rows)
    monkeypatch.setattr(one._transformer, "last_hidden", last_hidden)
    assert one.embed_documents(["0", "1", "2"]).shape == (3, tiny_qwen3.HIDDEN)


@pytest.mark.parametrize("broken", ["_token_rows", "last_hidden"])
def test_errors_of_either_side_leave_no_thread_behind(folder, broken, monkeypatch):
    monkeypatch.setattr("semlex.embedding.qwen3.WINDOW_TEXTS", 2)
    one = opened(folder)
    owner = one if broken == "_token_rows" else one._transformer
    whole, calls = getattr(owner, broken), iter(range(9))

    def failing(*arguments, **options):
        if next(calls) == 1:
            raise ModelError("broken off")
        return whole(*arguments, **options)

    monkeypatch.setattr(owner, broken, failing)
    with pytest.raises(ModelError, match="broken off"):
        one.embed_documents([str(i) for i in range(9)])
    assert threads_left() == []
    assert one.embed_documents(["a", "b", "c"]).shape == (3, tiny_qwen3.HIDDEN)


@pytest.mark.parametrize("words", [1, 2, 3, 30, 31, 32, 150, 151, 400])
def test_every_length_equals_the_model_card(encoder, card, words):
    texts = ["row " * words, "a", "数据库 " * (words // 3), ""]
    assert np.abs(encoder.embed_documents(texts) - card(texts)).max() <= 1e-6


@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_a_vector_is_that_of_the_model_card_whatever_its_neighbours(encoder, card, texts):
    vectors = encoder.embed_documents(texts)
    assert np.abs(vectors - card(texts)).max() <= 1e-6
    assert np.abs(vectors - np.concatenate([encoder.embed_documents([text]) for text in texts])).max() <= 1e-6


@pytest.mark.parametrize(("batch_size", "token_budget"), [(1, None), (2, 128), (1024, 1 << 20)])
def test_order_survives_every_batch_plan(folder, encoder, batch_size, token_budget):
    texts = [f"{'word ' * ((7 * i) % 23)}{i}" for i in range(40)]
    other = opened(folder, batch_size=batch_size, token_budget=token_budget)
    assert np.abs(other.embed_documents(texts) - encoder.embed_documents(texts)).max() <= 1e-6


def test_leading_dimensions_are_normalised_after_the_cut_and_keep_their_length_when_asked(folder, encoder, card):
    texts = ["a database keeps rows", "the lazy dog", ""]
    for dimensions in (32, 33, 64):
        cut = opened(folder, dimensions=dimensions)
        vectors = cut.embed_documents(texts)
        assert (cut.dimensions, cut.identity.dimensions, cut.least_dimensions) == (dimensions, dimensions, 32)
        assert vectors.shape == (3, dimensions)
        assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() <= 1e-6
        assert np.abs(vectors - card(texts, dimensions)).max() <= 1e-6
    raw = opened(folder, normalize_embeddings=False)
    vectors = raw.embed_documents(texts)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    assert (np.abs(norms - 1) > 0.1).all()
    assert np.abs(vectors / norms - encoder.embed_documents(texts)).max() <= 1e-6
    assert raw.identity.key != encoder.identity.key


def test_the_instruction_precedes_queries_only(folder, encoder):
    own, text = opened(folder, instruction="Find code"), "index of rows"
    assert np.array_equal(own.embed_documents([text]), encoder.embed_documents([text]))
    expected = encoder.embed_documents([instructed(text, "Find code")])[0]
    assert np.abs(own.embed_query(text) - expected).max() <= 1e-6
    assert np.abs(own.embed_query(text) - encoder.embed_query(text)).max() > 1e-3
    assert own.identity.key != encoder.identity.key


def test_a_long_text_is_cut_before_its_end_token_counted_and_told(folder, card, caplog):
    short = opened(folder, max_length=128)
    long_text = "the database keeps secret rows " * 100
    vectors = short.embed_documents(["fits", long_text, long_text])
    assert caplog.messages == [f"2 of 3 texts for {folder} so far did not fit into max_length=128 tokens and were cut"]
    offsets = short.token_offsets(long_text)
    kept = long_text[: offsets[126, 1]]
    assert short.count_tokens([kept]).tolist() == [127]
    assert np.abs(vectors[1] - card([kept])[0]).max() <= 1e-6
    caplog.clear()
    short.embed_documents([kept])
    short.embed_query(long_text)  # its cut is logged, but not counted among documents
    assert [message[:14] for message in caplog.messages] == ["1 of 1 queries"]
    assert short.documents_cut == 2


@given(TEXTS)
def test_offsets_and_counts_agree_with_the_text(encoder, text):
    offsets = encoder.token_offsets(text)
    assert (offsets.dtype, offsets.shape) == (np.int64, (encoder.count_tokens([text])[0], 2))
    assert (np.diff(offsets, axis=0) >= 0).all()
    assert (offsets[:, 0] <= offsets[:, 1]).all()
    covered = {i for start, end in offsets.tolist() for i in range(start, end)}
    assert covered == set(range(len(text)))


def test_no_texts_texts_that_no_tokenizer_can_read_and_out_of_range_parameters(folder, encoder):
    none = encoder.embed_documents([])
    assert (none.shape, none.dtype, encoder.count_tokens([]).shape) == ((0, tiny_qwen3.HIDDEN), np.float32, (0,))
    with pytest.raises(ValidationError) as caught:
        encoder.embed_documents(["fine", "secret \ud800", 3])
    assert [(error.row, error.code) for error in caught.value.errors] == [(1, "lone_surrogate"), (2, "wrong_type")]
    assert "secret" not in str(caught.value)
    with pytest.raises(ValidationError, match="sequence of str"):
        encoder.embed_documents("one text")
    for options, message in (
        *(({"batch_size": size}, f"batch_size must be between 1 and 1,024; got {size:,}") for size in (0, 1025)),
        ({"batch_size": 1.5}, "batch_size must be an int; got a float"),
        ({"batch_size": True}, "batch_size must be an int; got a bool"),
        *(({"max_length": most}, f"max_length must be between 128 and 32,768; got {most:,}") for most in (127, 32769)),
        ({"max_length": 4096}, "max_length for .* must be between 128 and 2,048; got 4,096"),
        ({"dimensions": 31}, "dimensions must be between 32 and .*; got 31"),
        ({"device": "tpu"}, "device must be one of mps, cuda, cpu or None; got 'tpu'"),
        ({"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16 or None; got 'int8'"),
        ({"attn": "magic"}, "attn must be one of trimmed, packed, reference; got 'magic'"),
        ({"token_budget": 1}, "token_budget must be between 128 and 1,048,576; got 1"),
        ({"instruction": "  "}, "instruction must not be blank"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            opened(folder, **options)
    with pytest.raises(ModelMismatchError, match=r"dimensions=1024 .* makes vectors of 64"):
        opened(folder, dimensions=1024)


def test_identity(folder, encoder):
    identity, expected = encoder.identity, (str(folder), tiny_qwen3.HIDDEN, "last-token", True)
    assert isinstance(encoder, Embedder)
    assert (identity.model, identity.dimensions, identity.pooling, identity.normalised) == expected
    assert identity.revision.startswith("sha256:")
    assert str(folder.parent) not in identity.key
    assert encoder.counter_name.startswith("tokenizer/")


def test_a_tokenizer_frames_a_text_with_the_trained_end_token_or_an_early_one_with_none(tmp_path, encoder):
    folder, texts = tiny_qwen3.write_embedder(tmp_path / "own", end_token=None), ["a database", "数据库", ""]
    assert np.array_equal(opened(folder).embed_documents(texts), encoder.embed_documents(texts))
    frame = r"adds the token ids \[{}\] before and \[{}\] after a text; expected only <\|endoftext\|>"
    for tokenizer, message in (
        ({"special_tokens": ["<|im_end|>"], "end_token": None}, r"lacks <\|endoftext\|>"),
        ({"end_token": "<|im_end|>"}, frame.format("", r"\d+")),
        ({"start_token": "<|im_end|>"}, frame.format(r"\d+", r"\d+")),
    ):
        tiny_qwen3.write_tokenizer(folder, **tokenizer)
        with pytest.raises(ModelError, match=message):
            opened(folder).embed_documents(["a"])


def test_weights_and_folders_that_are_missing_damaged_or_of_another_kind_are_refused(tmp_path):
    folder = tiny_qwen3.write_embedder(tmp_path / "spoilt")
    tiny_qwen3.change_weights(folder, lambda weights: weights.pop("layers.1.mlp.up_proj.weight"))
    with pytest.raises(ModelError, match=r"1 weights are missing .*layers\.1\.mlp\.up_proj\.weight"):
        opened(folder).embed_documents(["a"])
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size // 2)
    with pytest.raises(ModelError, match=r"cannot be loaded from .*SafetensorError"):
        opened(folder).embed_documents(["a"])
    with pytest.raises(ModelNotFoundError, match="is not on this machine; tried: local folder"):
        Qwen3EmbeddingEncoder(str(tmp_path / "nowhere"))
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "bert", "hidden_size": 64}')
    with pytest.raises(ModelError, match="not a Qwen3 model"):
        Qwen3EmbeddingEncoder(str(tmp_path))
    config.write_text('{"model_type": "qwen3", "hidden_size": 64, "max_position_embeddings": 8192}')
    empty = Qwen3EmbeddingEncoder(str(tmp_path))
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        empty.embed_documents(["a"])
    tiny_qwen3.write_tokenizer(tmp_path)
    with pytest.raises(ModelError, match=r"cannot be loaded from .*safetensors"):
        empty.embed_documents(["a"])


def test_a_checkpoint_with_a_language_model_head_is_read_without_it(tmp_path):
    folder = tiny_qwen3.write_reranker(tmp_path / "causal")
    body = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [*tokenizer("a database")["input_ids"], tokenizer.pad_token_id]
    with torch.no_grad():
        expected = torch.nn.functional.normalize(body(torch.tensor([ids])).last_hidden_state[0, -1], dim=0).numpy()
    assert np.abs(opened(folder).embed_documents(["a database"])[0] - expected).max() <= 1e-6


def test_half_precision_stays_close_and_rows_that_overflow_it_become_float32(tmp_path, folder, encoder, caplog):
    texts = ["a database keeps rows", "the quick brown fox", "数据库"]
    vectors = opened(folder, dtype="bfloat16").embed_documents(texts)
    assert (np.sum(vectors * encoder.embed_documents(texts), axis=1) > 0.995).all()
    loud = tiny_qwen3.write_embedder(tmp_path / "loud")
    # Its output passes 65,504, the largest float16.
    tiny_qwen3.change_weights(loud, lambda weights: weights["layers.0.mlp.down_proj.weight"].mul_(1e5))
    vectors = opened(loud, dtype="float16").embed_documents(texts)
    assert any("overflowed in float16; the model now runs in float32" in message for message in caplog.messages)
    assert (np.sum(vectors * opened(loud).embed_documents(texts), axis=1) > 0.999).all()


def test_a_device_that_is_not_there_is_replaced_with_one_line(folder, encoder, caplog, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    vectors = opened(folder, device="cuda").embed_documents(["a"])
    [message] = caplog.messages
    assert "device 'cuda' is not available here; using" in message
    assert np.abs(vectors - encoder.embed_documents(["a"])).max() <= 1e-5


def test_many_threads_get_the_vectors_of_one_and_none_of_one_that_is_closed(folder, encoder):
    shared, texts = opened(folder), [f"row {i} " * (i + 1) for i in range(8)]
    with ThreadPoolExecutor(len(texts)) as pool:
        found = [*pool.map(lambda text: shared.embed_documents([text])[0], texts)]
    assert np.abs(np.stack(found) - encoder.embed_documents(texts)).max() <= 1e-6
    for _ in range(2):
        shared.close()
    with pytest.raises(ModelError, match="was closed"):
        shared.embed_documents(["a"])
