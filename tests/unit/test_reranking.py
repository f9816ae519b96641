"""The order of reranked hits, and the reranker that counts shared words."""

import itertools
import logging
import math
import unicodedata
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tokenizers import processors

from semlex import _core
from semlex.errors import ConfigurationError, ModelError, ModelNotFoundError, ValidationError, WorkAbandonedError
from semlex.models import cancellation
from semlex.reranking.base import Reranker
from semlex.reranking.onnx import OnnxReranker
from semlex.reranking.registry import choose_reranker
from semlex.reranking.term_overlap import TermOverlapReranker
from semlex.search.fusion import Candidate
from semlex.search.rerank import at_least, by_scores, mixed_scores
from semlex.types.results import SearchResult
from tests.support import model_cache, onnx_models, tokenizers_on_disk
from tests.support.onnx_models import MAX_TOKENS, write_folder
from tests.support.properties import examples

FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)
PAIRS = st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=30)


def ordered(pairs, weight):
    """Pairs of fused and reranker's score, reranked; ids are places in the order of the fusion."""
    by_fusion = sorted(pairs, key=lambda pair: -pair[0])
    hits = [
        (Candidate((UUID(int=0), str(place)), fused_score=fused), SearchResult("text", id=str(place)))
        for place, (fused, _) in enumerate(by_fusion)
    ]
    scores = np.array([score for _, score in by_fusion], dtype=np.float32)
    return by_scores(hits, scores, mixed_scores(hits, scores, weight), weight)


def places(hits):
    return [int(hit.id) for _, hit in hits]


@given(PAIRS, st.floats(0, 1))
def test_the_two_scores_decide_together(pairs, weight):
    def by(scores):
        return sorted(range(len(pairs)), key=lambda place: -scores[place])

    in_order = list(range(len(pairs)))
    assert places(ordered(pairs, 0)) == in_order
    assert places(ordered(pairs, 1)) == by([score for _, score in sorted(pairs, key=lambda pair: -pair[0])])
    hits = ordered(pairs, weight)
    for place, (one, hit) in enumerate(hits):
        for other, below in hits[place + 1 :]:
            better = (one.order_score >= other.order_score) or (hit.rerank_score or 0) >= (below.rerank_score or 0)
            assert better, (hit, below)
    assert all(hit.mixed_score is not None and math.isfinite(hit.mixed_score) for _, hit in hits)
    # Equal scores of one side leave the order to the other.
    assert places(ordered([(fused, 0.5) for fused, _ in pairs], weight)) == in_order
    scores = [score for _, score in pairs]
    assert weight == 0 or places(ordered([(0.1, score) for score in scores], weight)) == by(scores)


def test_mixed_scores_and_term_overlap():
    hits = ordered([(3.0, 0.0), (1.0, 1.0)], 0.75)  # z: 1 and -1; -1 and 1
    assert [(hit.id, hit.mixed_score) for _, hit in hits] == [("1", 0.5), ("0", -0.5)]
    hits = ordered([(9.0, 0.2), (1.0, 0.4), (0.0, 0.9)], 0.5)
    kept, _ = at_least(hits, 0.3, "model")
    assert {hit.rerank_score for _, hit in kept} == {np.float32(0.4).item(), np.float32(0.9).item()}
    for weight in [0.0, 0.5, 1.0]:
        ((_, hit),) = ordered([(0.9, 0.25)], weight)
        assert (hit.rerank_score, hit.mixed_score) == (0.25, 0.0)
    assert isinstance(RERANKER, Reranker)
    assert RERANKER.identity == "term-overlap/1"
    RERANKER.close()
    assert RERANKER.score("red", []).shape == (0,)
    with pytest.raises(ValidationError, match="row 1: text holds half of a surrogate pair"):
        RERANKER.score("red", ["fine", "\udfff"])
    with pytest.raises(ValidationError, match="must be a"):
        RERANKER.score(None, ["fine"])
    flag = cancellation.Flag()
    flag.set()
    with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        RERANKER.score("red", ["red"])


# --- the words that a query and a text share --------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["red", "Red", "blue", "stone", "Straße", "strasse", "ﬁne", "fine", "数据", "-", "x"]))
SENTENCES = WORDS.map(" ".join)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
RERANKER = TermOverlapReranker()


def words(text):
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [folded[start:end] for start, end in _core.word_offsets(folded)]


def slow_score(query, text):
    """The definition, over every stretch of the text."""
    wanted, held = set(words(query)), words(text)
    found = wanted & set(held)
    if not found:
        return 0.0
    stretches = itertools.combinations(range(len(held) + 1), 2)
    shortest = min(end - start for start, end in stretches if found <= set(held[start:end]))
    return (len(found) - 1 + len(found) / shortest) / len(wanted)


@given(SENTENCES | ANY, st.lists(SENTENCES | ANY, max_size=5))
def test_scores_equal_the_definition(query, texts):
    scores = RERANKER.score(query, texts)
    assert scores.dtype == np.float32
    assert scores.tolist() == np.array([slow_score(query, text) for text in texts], dtype=np.float32).tolist()
    assert ((scores >= 0) & (scores <= 1)).all()


# --- a cross-encoder as an ONNX file ----------------------------------------------------------------------------------

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


def test_cut_texts_are_counted_and_what_cannot_be_used_is_named(folder, caplog, tmp_path):
    reranker = OnnxReranker(str(folder))
    with caplog.at_level(logging.WARNING):
        reranker.score(QUERY, TEXTS)
    assert f"1 of 6 candidates for {folder} so far did not fit into the" in caplog.text
    with pytest.raises(ConfigurationError, match=r"reads 21 tokens .* but the query alone has \d+: shorten"):
        reranker.score(LONG, TEXTS)
    with pytest.raises(
        ModelError, match=r"score of row 1 is not finite; onnx:.* with a file of full precision may help"
    ):
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
