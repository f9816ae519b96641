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


def last_token_pool(last_hidden_states, attention_mask):
    """The model card's own function."""
    left_padding = attention_mask[:, -1].sum() == attention_mask.shape[0]
    if left_padding:
        return last_hidden_states[:, -1]
    sequence_lengths = attention_mask.sum(dim=1) - 1
    batch_size = last_hidden_states.shape[0]
    return last_hidden_states[torch.arange(batch_size), sequence_lengths]


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
            outputs = model(**batch)
        pooled = last_token_pool(outputs.last_hidden_state, batch["attention_mask"])[:, :dimensions]
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


@pytest.mark.parametrize("dimensions", [32, 33, 64])
def test_leading_dimensions_are_normalised_after_the_cut(folder, card, dimensions):
    texts = ["a database keeps rows", "the lazy dog", ""]
    cut = opened(folder, dimensions=dimensions)
    vectors = cut.embed_documents(texts)
    assert vectors.shape == (3, dimensions)
    assert cut.dimensions == cut.identity.dimensions == dimensions
    assert cut.least_dimensions == 32
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() <= 1e-6
    assert np.abs(vectors - card(texts, dimensions)).max() <= 1e-6


def test_vectors_keep_their_length_when_asked(folder, encoder):
    raw = opened(folder, normalize_embeddings=False)
    texts = ["a database keeps rows", "an index"]
    vectors = raw.embed_documents(texts)
    norms = np.linalg.norm(vectors, axis=1)
    assert (np.abs(norms - 1) > 0.1).all()
    assert np.abs(vectors / norms[:, None] - encoder.embed_documents(texts)).max() <= 1e-6
    assert raw.identity.key != encoder.identity.key


def test_the_instruction_precedes_queries_only(folder, encoder):
    own = opened(folder, instruction="Find code")
    text = "index of rows"
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
    assert not caplog.records
    # A cut query is logged, but is not counted as a document.
    short.embed_query(long_text)
    assert [message[:14] for message in caplog.messages] == ["1 of 1 queries"]
    assert short.documents_cut == 2


@given(TEXTS)
def test_offsets_and_counts_agree_with_the_text(encoder, text):
    offsets = encoder.token_offsets(text)
    assert offsets.dtype == np.int64
    assert offsets.shape == (int(encoder.count_tokens([text])[0]), 2)
    assert (np.diff(offsets, axis=0) >= 0).all()
    assert (offsets[:, 0] <= offsets[:, 1]).all()
    covered = {i for start, end in offsets.tolist() for i in range(start, end)}
    assert covered == set(range(len(text)))


def test_no_texts_and_texts_that_no_tokenizer_can_read(encoder):
    none = encoder.embed_documents([])
    assert (none.shape, none.dtype, encoder.count_tokens([]).shape) == ((0, tiny_qwen3.HIDDEN), np.float32, (0,))
    with pytest.raises(ValidationError) as caught:
        encoder.embed_documents(["fine", "secret \ud800", 3])
    assert [(error.row, error.code) for error in caught.value.errors] == [(1, "lone_surrogate"), (2, "wrong_type")]
    assert "secret" not in str(caught.value)
    with pytest.raises(ValidationError, match="sequence of str"):
        encoder.embed_documents("one text")


def test_identity(folder, encoder):
    identity = encoder.identity
    assert isinstance(encoder, Embedder)
    assert (identity.model, identity.dimensions) == (str(folder), tiny_qwen3.HIDDEN)
    assert (identity.pooling, identity.normalised) == ("last-token", True)
    assert identity.revision.startswith("sha256:")
    assert str(folder.parent) not in identity.key
    assert encoder.counter_name.startswith("tokenizer/")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be between 1 and 1,024; got 0"),
        ({"batch_size": 1025}, "batch_size must be between 1 and 1,024; got 1,025"),
        ({"batch_size": 1.5}, "batch_size must be an int; got a float"),
        ({"batch_size": True}, "batch_size must be an int; got a bool"),
        ({"max_length": 127}, "max_length must be between 128 and 32,768; got 127"),
        ({"max_length": 32769}, "max_length must be between 128 and 32,768; got 32,769"),
        ({"max_length": 4096}, "max_length for .* must be between 128 and 2,048; got 4,096"),
        ({"dimensions": 31}, "dimensions must be between 32 and .*; got 31"),
        ({"device": "tpu"}, "device must be one of mps, cuda, cpu or None; got 'tpu'"),
        ({"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16 or None; got 'int8'"),
        ({"attn": "magic"}, "attn must be one of .*; got 'magic'"),
        ({"token_budget": 1}, "token_budget must be between 128 and 1,048,576; got 1"),
        ({"instruction": "  "}, "instruction must not be blank"),
        ({"dimensions": 1024}, r"dimensions=1024 .* makes vectors of 64"),
    ],
)
def test_out_of_range_parameters(folder, options, message):
    kind = ModelMismatchError if options == {"dimensions": 1024} else ConfigurationError
    with pytest.raises(kind, match=message):
        opened(folder, **options)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"special_tokens": ["<|im_end|>"], "end_token": None}, r"lacks <\|endoftext\|>"),
        (
            {"end_token": "<|im_end|>"},
            r"adds the token ids \[\] before and \[\d+\] after a text; expected only <\|endoftext\|>",
        ),
    ],
)
def test_a_tokenizer_without_the_trained_end_token_is_refused(tmp_path, tokenizer, message):
    broken = opened(tiny_qwen3.write_embedder(tmp_path / "broken", **tokenizer))
    with pytest.raises(ModelError, match=message):
        broken.embed_documents(["a"])


def test_an_early_revision_without_post_processor_gives_the_same_vectors(tmp_path, encoder):
    early = opened(tiny_qwen3.write_embedder(tmp_path / "early", end_token=None))
    texts = ["a database", "数据库", ""]
    assert np.array_equal(early.embed_documents(texts), encoder.embed_documents(texts))


def test_missing_or_damaged_weights_are_refused(tmp_path):
    folder = tiny_qwen3.write_embedder(tmp_path / "spoilt")
    tiny_qwen3.change_weights(folder, lambda weights: weights.pop("layers.1.mlp.up_proj.weight"))
    with pytest.raises(ModelError, match=r"1 weights are missing .*layers\.1\.mlp\.up_proj\.weight"):
        opened(folder).embed_documents(["a"])
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"cannot be loaded from .*SafetensorError"):
        opened(folder).embed_documents(["a"])


def test_a_checkpoint_with_a_language_model_head_is_read_without_it(tmp_path):
    folder = tiny_qwen3.write_reranker(tmp_path / "causal")
    body = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [*tokenizer("a database")["input_ids"], tokenizer.pad_token_id]
    with torch.no_grad():
        expected = torch.nn.functional.normalize(body(torch.tensor([ids])).last_hidden_state[0, -1], dim=0).numpy()
    causal = opened(folder)
    assert np.abs(causal.embed_documents(["a database"])[0] - expected).max() <= 1e-6


def test_folders_that_hold_no_qwen3_model(tmp_path):
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


def test_rows_that_overflow_half_precision_are_computed_in_float32(tmp_path, caplog):
    folder, texts = tiny_qwen3.write_embedder(tmp_path / "loud"), ["a database keeps rows", "an index"]
    # Its output passes 65,504, the largest float16.
    tiny_qwen3.change_weights(folder, lambda weights: weights["layers.0.mlp.down_proj.weight"].mul_(1e5))
    vectors = opened(folder, dtype="float16").embed_documents(texts)
    assert any("overflowed in float16; the model now runs in float32" in record.message for record in caplog.records)
    assert (np.sum(vectors * opened(folder).embed_documents(texts), axis=1) > 0.999).all()


def test_half_precision_stays_close(folder, encoder):
    texts = ["a database keeps rows", "the quick brown fox", "数据库"]
    vectors = opened(folder, dtype="bfloat16").embed_documents(texts)
    assert (np.sum(vectors * encoder.embed_documents(texts), axis=1) > 0.995).all()


def test_a_device_that_is_not_there_is_replaced_with_one_line(folder, encoder, caplog, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    elsewhere = opened(folder, device="cuda")
    vectors = elsewhere.embed_documents(["a"])
    assert len(caplog.records) == 1
    assert "device 'cuda' is not available here; using" in caplog.text
    assert np.abs(vectors - encoder.embed_documents(["a"])).max() <= 1e-5


def test_many_threads_get_the_vectors_of_one_and_none_of_one_that_is_closed(folder, encoder):
    shared = opened(folder)
    texts = [f"row {i} " * (i + 1) for i in range(8)]
    with ThreadPoolExecutor(len(texts)) as pool:
        found = [*pool.map(lambda text: shared.embed_documents([text])[0], texts)]
    assert np.abs(np.stack(found) - encoder.embed_documents(texts)).max() <= 1e-6
    for _ in range(2):
        shared.close()
    with pytest.raises(ModelError, match="was closed"):
        shared.embed_documents(["a"])
