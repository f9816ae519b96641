from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import CrossEncoder

from semlex.errors import ConfigurationError, ModelError, ModelNotFoundError, ValidationError, WorkAbandonedError
from semlex.models import cancellation
from semlex.reranking.base import Reranker
from semlex.reranking.cross_encoder import CrossEncoderReranker
from tests.support import tiny_cross_encoder, tiny_qwen3
from tests.support.folders import change_json

TEXTS = st.lists(st.text("abcdefgz AZ.09é", max_size=60), min_size=1, max_size=7)
NUMBERED = [f"{'word ' * ((5 * row) % 17)}{row}" for row in range(20)]
MIXED = ["the quick fox", "rows rows index", "", "word " * 60, "a", "an index keeps rows again"]


def opened(folder, **options):
    return CrossEncoderReranker(str(folder), **{"device": "cpu", "dtype": "float32", **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_cross_encoder.write_cross_encoder(tmp_path_factory.mktemp("tiny-cross-encoder") / "tiny")


@pytest.fixture(scope="module")
def reranker(folder):
    return opened(folder, batch_size=3)


@pytest.fixture(scope="module")
def plain(folder):
    """What sentence-transformers itself makes of the model."""
    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    return lambda query, texts: model.predict([(query, text) for text in texts], activation_fn=torch.nn.Sigmoid())


@pytest.fixture
def copy(tmp_path):
    """A copy of the tiny model that a test may spoil."""
    return tiny_cross_encoder.write_cross_encoder(tmp_path / "copy")


@settings(max_examples=25)
@given(TEXTS, TEXTS)
def test_a_score_is_that_of_sentence_transformers_whatever_its_neighbours(reranker, plain, query, texts):
    scores = reranker.score(query[0], texts)
    assert scores.dtype == np.float32
    assert np.abs(scores - plain(query[0], texts)).max() <= 1e-6
    single = np.concatenate([reranker.score(query[0], [text]) for text in texts])
    assert np.abs(scores - single).max() <= 1e-6


def test_scores_come_back_in_input_order_and_tell_texts_apart(reranker, plain):
    scores = reranker.score("word", NUMBERED)
    assert np.abs(scores - plain("word", NUMBERED)).max() <= 1e-6
    assert np.ptp(scores) > 1e-3
    assert ((scores > 0) & (scores < 1)).all()


def test_scores_are_probabilities_whatever_the_models_config_asks_for(copy, plain):
    change_json(copy / "config.json", sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})
    raw = CrossEncoder(str(copy), device="cpu", model_kwargs={"dtype": torch.float32})
    assert np.abs(raw.predict([("index", text) for text in MIXED]) - plain("index", MIXED)).max() > 0.1
    raw.save_pretrained(str(copy.parent / "saved"))
    for folder in (copy, copy.parent / "saved"):
        assert np.abs(opened(folder).score("index", MIXED) - plain("index", MIXED)).max() <= 1e-6


def test_texts_that_are_too_long_are_counted_and_told(folder, caplog):
    short = opened(folder, max_length=16)
    scores = short.score("index", MIXED)
    told = "so far did not fit into max_length=16 tokens with the query and were cut"
    assert caplog.messages == [f"1 of 6 candidates for {folder} {told}"]
    # [CLS] index [SEP], twelve words, [SEP]
    assert np.abs(scores[3] - short.score("index", ["word " * 12])[0]) <= 1e-6


def test_several_threads_and_half_precision_if_asked_for(folder, reranker, plain):
    calls = [MIXED[: 1 + number % len(MIXED)] for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda texts: reranker.score("rows", texts), calls))
    for scores, texts in zip(answers, calls, strict=True):
        assert np.abs(scores - plain("rows", texts)).max() <= 1e-6
    difference = np.abs(opened(folder, dtype="bfloat16").score("index", MIXED) - plain("index", MIXED))
    assert 0 < difference.max() < 0.05


def test_work_that_nobody_waits_for_ends_between_batches(reranker, monkeypatch):
    flag, seen, forward = cancellation.Flag(), [], CrossEncoderReranker._forward

    def count(self, model, pairs):
        seen.append(len(pairs))
        flag.set()
        return forward(self, model, pairs)

    monkeypatch.setattr(CrossEncoderReranker, "_forward", count)
    with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        reranker.score("index", MIXED)
    assert seen == [3]


def test_a_failing_forward_pass_is_a_models_error_and_a_head_that_is_missing_never_random(copy):
    tiny_qwen3.change_weights(copy, lambda weights: weights["classifier.bias"].fill_(float("nan")))
    reranker = opened(copy)
    with pytest.raises(ModelError, match="score of row 0 is not finite; dtype='float32' may help"):
        reranker.score("index", ["text"])
    reranker._model.model.config.pad_token_id = None
    reranker._model.model.forward = None
    with pytest.raises(ModelError, match="cannot judge 1 candidates"):
        reranker.score("secret", ["secret"])
    tiny_qwen3.change_weights(copy, lambda weights: weights.pop("classifier.weight"))
    reranker = opened(copy)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"1 weights of its head are missing .* classifier\.weight"):
            reranker.score("index", ["text"])


def test_batches_shrink_where_memory_runs_out(folder, plain, monkeypatch, caplog):
    reranker = opened(folder)
    reranker.score("index", ["text"])
    predict, sizes = reranker._model.predict, []

    def short(pairs, **options):
        sizes.append(len(pairs))
        if len(pairs) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return predict(pairs, **options)

    monkeypatch.setattr(reranker._model, "predict", short)
    assert np.abs(reranker.score("word", NUMBERED) - plain("word", NUMBERED)).max() <= 1e-6
    assert sizes == [20, 10, 5, 5, 5, 5]
    assert caplog.messages == [f"{folder}: memory of cpu ran out; batches have at most 5 texts from now on"]
    reranker.score("word", NUMBERED)
    assert sizes[6:] == [5, 5, 5, 5]


def test_other_kinds_of_models_are_refused(tmp_path, copy):
    causal = tiny_qwen3.write_reranker(tmp_path / "causal")
    with pytest.raises(ModelError, match=r"not a cross-encoder .*Qwen3Reranker"):
        opened(causal)
    change_json(copy / "config.json", architectures=["BertModel"])
    with pytest.raises(ModelError, match=r"not a cross-encoder .*choose another model"):
        opened(copy)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="not a cross-encoder"):
        opened(tmp_path / "empty")
    (copy / "config_sentence_transformers.json").write_text('{"model_type": "SentenceTransformer"}')
    change_json(copy / "config.json", architectures=["BertForSequenceClassification"])
    with pytest.raises(ModelError, match="not a cross-encoder"):  # an embedding model is given no random head
        opened(copy)
    labels = tiny_cross_encoder.write_cross_encoder(tmp_path / "labels", labels=2)
    with pytest.raises(ModelError, match="classifier with 2 labels; expected 1"):
        opened(labels).score("index", ["text"])


def test_weights_that_are_pickles_are_refused(copy):
    (copy / "model.safetensors").rename(copy / "kept")
    torch.save({}, copy / "pytorch_model.bin")
    with pytest.raises(ModelError, match="no weights in safetensors format"):
        opened(copy)
    (copy / "pytorch_model.bin").unlink()
    with pytest.raises(ModelError, match=r"cannot be loaded .*\*\.safetensors"):
        opened(copy).score("index", ["text"])


def test_code_in_a_models_folder_is_not_run(copy):
    marker = copy / "was-run"
    (copy / "evil.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Module: pass\n")
    (copy / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')
    (copy / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]')
    with pytest.raises(ModelError, match="no Python code"):
        opened(copy).score("index", ["text"])
    assert not marker.exists()


def test_texts_that_no_tokenizer_can_read_and_out_of_range_parameters(folder, reranker):
    with pytest.raises(ValidationError, match="row 1: text holds half of a surrogate pair"):
        reranker.score("index", ["fine", "\udfff"])
    with pytest.raises(ValidationError, match="must be a"):
        reranker.score(None, ["fine"])
    for options, message in (
        ({"batch_size": 0}, "batch_size must be between 1 and 256; got 0"),
        ({"max_length": 15}, "max_length must be between 16 and 32,768; got 15"),
        ({"max_length": 129}, "max_length for .* must be between 16 and 128; got 129"),
        ({"device": "gpu"}, "device must be one of"),
        ({"dtype": "float8"}, "dtype must be one of"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            opened(folder, **options)


def test_identity_and_absence(tmp_path, folder, reranker):
    assert isinstance(reranker, Reranker)
    assert reranker.identity.startswith(f"{folder}@sha256:")
    with pytest.raises(ModelNotFoundError, match="not on this machine"):
        opened(tmp_path / "nowhere")


def test_no_texts_need_no_model_and_a_closed_one_refuses_work(folder):
    closed = opened(folder)
    none = closed.score("index", [])
    assert (none.shape, none.dtype, closed._model) == ((0,), np.float32, None)
    closed.score("index", ["text"])
    for _ in range(2):
        closed.close()
    assert closed._model is None
    for texts in (["text"], []):
        with pytest.raises(ModelError, match="was closed"):
            closed.score("index", texts)
