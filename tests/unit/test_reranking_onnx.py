import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tokenizers import processors

from semlex.errors import ConfigurationError, ModelError, ModelNotFoundError
from semlex.reranking.base import Reranker
from semlex.reranking.onnx import OnnxReranker
from semlex.reranking.registry import choose_reranker
from tests.support import model_cache, onnx_models, tokenizers_on_disk
from tests.support.onnx_models import MAX_TOKENS, write_folder
from tests.support.properties import examples

empty_cache = model_cache.empty_cache
TOKENIZER = tokenizers_on_disk.word_pieces()
TOKENIZER.encode_special_tokens = True
LONG = "the quick fox keeps rows again " * 9
TEXTS = ["the quick fox", "", "a database keeps rows", LONG, "dog [SEP] dog", "[CLS] fox"]
QUERY = "which dog?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("models") / "judge", pooling=None, output="logits", labels=1)


@pytest.fixture(scope="module")
def reranker(folder):
    opened = OnnxReranker(str(folder))
    yield opened
    opened.close()


def expected(query, text, labels=1, between=(3,)):
    """The score of a pair, whose text alone is cut, by numpy."""
    asked, judged = (TOKENIZER.encode(part, add_special_tokens=False).ids for part in (query, text))
    judged = judged[: MAX_TOKENS - 2 - len(between) - len(asked)]
    front, back = [2, *asked, *between], [*judged, 3]
    types = [0] * len(front) + [int(between == (3,))] * len(back)
    found = onnx_models.logits([*front, *back], types, labels)
    return 1 / (1 + np.exp(-(found[0] if labels == 1 else found[1] - found[0])))


@settings(max_examples=examples(25))
@given(texts=st.lists(st.sampled_from(TEXTS) | st.text(st.sampled_from("thequickfox .,"), max_size=60), max_size=40))
def test_scores_are_those_of_single_pairs(reranker, texts):
    scores = reranker.score(QUERY, texts)
    assert scores.dtype == np.float32
    assert_allclose(scores, [expected(QUERY, text) for text in texts], atol=2e-6)


def test_two_labels_int8_and_another_way_of_joining(tmp_path):
    two = OnnxReranker(str(write_folder(tmp_path / "two", output="logits", labels=2)))
    assert_allclose(two.score(QUERY, TEXTS), [expected(QUERY, text, 2) for text in TEXTS], atol=2e-6)
    folder = write_folder(tmp_path / "roberta", output="logits", labels=1, file="model_int8.onnx", int8=True)
    tokenizer = tokenizers_on_disk.word_pieces()
    tokenizer.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    scores = OnnxReranker(str(folder)).score(QUERY, TEXTS)
    assert_allclose(scores, [expected(QUERY, text, between=(3, 3)) for text in TEXTS], atol=0.05)


def test_by_name(folder, tmp_path, empty_cache):
    choice = choose_reranker(f"onnx:{folder}")
    assert isinstance(choice.model, OnnxReranker)
    assert isinstance(choice.model, Reranker)
    assert choice.reason == f"reranking with {folder} (ONNX), as configured"
    assert choice.model.identity.startswith(f"onnx:{folder}#model.onnx@sha256:")
    assert isinstance(choose_reranker(str(folder)).model, OnnxReranker)  # nothing else is there
    model_cache.put_into_cache(
        empty_cache, "org/judge", lambda path: write_folder(path, pooling=None, output="logits", labels=1)
    )
    assert choose_reranker("org/judge").model.identity == choose_reranker("onnx:org/judge").model.identity
    with pytest.raises(ModelNotFoundError, match=r"onnx:org/other.*'term-overlap'"):
        choose_reranker("onnx:org/other")


def test_cut_texts_are_counted_and_what_cannot_be_used_is_named(folder, caplog, tmp_path, reranker):
    reranker = OnnxReranker(str(folder))
    with caplog.at_level(logging.WARNING):
        reranker.score(QUERY, TEXTS)
    assert f"1 of 6 candidates for {folder} so far did not fit into the" in caplog.text
    with pytest.raises(ConfigurationError, match=r"reads 21 tokens .* but the query alone has \d+: shorten"):
        reranker.score(LONG, TEXTS)
    with pytest.raises(ModelError, match=r"the score of row 1 is not finite; a file of full precision may help"):
        reranker.score(QUERY, ["fox", "secret"])
    embedder = write_folder(tmp_path / "embedder")
    with pytest.raises(ModelError, match=r"has the outputs last_hidden_state, but needs logits"):
        OnnxReranker(str(embedder)).score(QUERY, ["fox"])
    onnx_models.write_graph(embedder / "model.onnx", output="logits")
    with pytest.raises(ModelError, match=r"logits has the shape \(1, 11, 8\) for 1 pairs, but a cross-encoder"):
        OnnxReranker(str(embedder)).score(QUERY, ["fox"])
    reranker = OnnxReranker(str(embedder))
    reranker.close()
    with pytest.raises(ModelError, match="was closed"):
        reranker.score(QUERY, [])
