import json
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertModel

from semlex import PostgreSQLRetriever
from semlex.cli.reports import print_report
from semlex.embedding import sentence_transformers as module
from semlex.embedding.base import Embedder
from semlex.embedding.onnx import OnnxEmbedder
from semlex.embedding.registry import choose_embedder
from semlex.embedding.sentence_transformers import SentenceTransformersEmbedder
from semlex.errors import (
    ConfigurationError,
    MissingExtraError,
    ModelError,
    ModelMismatchError,
    ModelNotFoundError,
    ValidationError,
    WorkAbandonedError,
)
from semlex.models import cancellation
from tests.support import tiny_qwen3
from tests.support.folders import change_json

HIDDEN = 32
MAX_TOKENS = 24
PROMPTS = {"query": "query: ", "document": "passage: "}
SENTENCES = [
    "The quick brown fox jumps over the lazy dog",
    "",
    "a database keeps rows, and an index finds them again.",
    "Größe Maße naïve café 数据库 検索 поиск 😀",
    "Given a web search query, retrieve relevant passages " * 9,
    "Query",
]


def write_model(folder, prompts=PROMPTS):
    """A tiny transformer with random weights of a fixed seed, and mean pooling, as the package itself writes it."""
    parts = folder.parent / f"{folder.name}-parts"
    tiny_qwen3.write_tokenizer(parts)
    torch.manual_seed(22)
    sizes = {"vocab_size": 700, "hidden_size": HIDDEN, "intermediate_size": 48, "max_position_embeddings": 64}
    config = BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.3)
    BertModel(config).save_pretrained(parts)
    modules = [Transformer(str(parts), max_seq_length=MAX_TOKENS), Pooling(HIDDEN)]
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(folder))
    return folder


def opened(folder, batch_size=None, **options):
    return SentenceTransformersEmbedder(str(folder), options.pop("device", "cpu"), batch_size, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def package(folder):
    """The package itself, with the same weights: the specification."""
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def embedder(folder):
    return opened(folder, batch_size=4)


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the model, which the test may spoil."""
    return shutil.copytree(folder, tmp_path / "copy")


def unit(vectors, dimensions=HIDDEN):
    leading = np.asarray(vectors)[..., :dimensions].astype(np.float64)
    return leading / np.linalg.norm(leading, axis=-1, keepdims=True)


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(SENTENCES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=9)
)
def test_a_batch_is_the_map_of_its_texts(embedder, package, rows):
    vectors = embedder.embed_documents(rows)
    assert (vectors.shape, vectors.dtype) == ((len(rows), HIDDEN), np.float32)
    for text, vector in zip(rows, vectors, strict=True):
        assert_allclose(vector, unit(package.encode(["passage: " + text], prompt="")[0]), atol=2e-6)


def check_vectors(embedder, package):
    assert_allclose(embedder.embed_documents(SENTENCES), unit(package.encode_document(SENTENCES)), atol=2e-6)
    for text in SENTENCES:
        assert_allclose(embedder.embed_query(text), unit(package.encode_query(text)), atol=2e-6)


def test_the_packages_own_vectors_also_in_several_threads(embedder, package):
    assert isinstance(embedder, Embedder)
    check_vectors(embedder, package)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(embedder.embed_documents, [SENTENCES] * 4):
            assert_allclose(vectors, unit(package.encode_document(SENTENCES)), atol=2e-6)


def test_batches_shrink_where_memory_runs_out_and_stay_small_in_calls_that_run(folder, package, monkeypatch):
    embedder, texts = opened(folder), [text[:number] for number, text in enumerate(SENTENCES * 3)]
    encode, sizes = embedder._load().encode_document, []

    def short(texts, **options):
        sizes.append(len(texts))
        if len(texts) > 9:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(texts, **options)

    monkeypatch.setattr(embedder._load(), "encode_document", short)
    assert_allclose(embedder.embed_documents(texts), unit(package.encode_document(texts)), atol=2e-6)
    assert sizes == [18, 9, 9]
    embedder = opened(folder, 4)
    encode, sizes = embedder._load().encode_document, []

    def short_after_the_first(texts, **options):
        sizes.append(len(texts))
        if len(sizes) == 1:  # beside this call, as from another thread
            embedder.embed_documents(SENTENCES[:4])
        elif len(texts) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(texts, **options)

    monkeypatch.setattr(embedder._load(), "encode_document", short_after_the_first)
    embedder.embed_documents(SENTENCES[:4])
    embedder.embed_documents(SENTENCES[:4])
    assert sizes == [4, 4, 2, 2, 2, 2]


class ForExport(torch.nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.model = BertModel.from_pretrained(str(folder), attn_implementation="eager").eval()

    def forward(self, ids, mask, types):
        return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state


def test_the_same_model_as_an_onnx_file_has_the_same_vectors(copy, folder, package):
    names, output = ["input_ids", "attention_mask", "token_type_ids"], "last_hidden_state"
    axes = {name: {0: "b", 1: "t"} for name in [*names, output]}
    options = {"input_names": names, "output_names": [output], "dynamic_axes": axes, "dynamo": False}
    example = torch.ones(2, 5, dtype=torch.long)
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(ForExport(folder), (example, example, 0 * example), str(copy / "model.onnx"), **options)
    embedder = OnnxEmbedder(str(copy))
    check_vectors(embedder, package)
    assert embedder.max_tokens == opened(folder).max_tokens


def test_a_leading_part_is_normalised_after_the_cut(folder, package):
    whole = package.encode_document(SENTENCES)
    for dimensions in (1, 7, HIDDEN):
        embedder = opened(folder, dimensions=dimensions)
        assert embedder.dimensions == dimensions
        assert_allclose(embedder.embed_documents(SENTENCES), unit(whole, dimensions), atol=2e-6)


def test_prompts_are_those_of_the_model_or_others(copy, package):
    for config, options, expected in (
        ({}, {"query_prompt": "", "document_prompt": "text: "}, ["", "text: "]),
        ({"prompts": {}}, {}, ["", ""]),
        ({"prompts": {"query": "q: ", "passage": "p: "}}, {}, ["q: ", "p: "]),
        ({"prompts": {"query": "q: ", "corpus": "c: ", "passage": "p: "}}, {}, ["q: ", "p: "]),
        ({"prompts": {"retrieval": "r: "}, "default_prompt_name": "retrieval"}, {}, ["r: ", "r: "]),
    ):
        change_json(copy / "config_sentence_transformers.json", **config)
        embedder = opened(copy, **options)
        found = [embedder.embed_query("fox"), embedder.embed_documents(["fox"])[0]]
        assert_allclose(found, [unit(package.encode("fox", prompt=prompt)) for prompt in expected], atol=2e-6)
        assert embedder.identity.instruction == (expected[0] or None)


def test_texts_that_are_cut_are_counted(folder, caplog):
    embedder, fits = opened(folder), "a"  # and then a text that is as long as the model reads
    while embedder.count_tokens([f"passage: {fits} a"])[0] < MAX_TOKENS:  # one is the model's own end token
        fits += " a"
    embedder.embed_documents([fits])
    assert (embedder.documents_cut, caplog.messages) == (0, [])
    embedder.embed_documents(["a", fits + " a"])
    assert embedder.documents_cut == 1
    limit = f"the {MAX_TOKENS} tokens that the model reads"
    assert caplog.messages == [f"1 of 3 texts for {folder} so far did not fit into {limit} and were cut"]
    caplog.clear()
    embedder.embed_query(fits * 2)  # its cut is logged, but not counted among documents
    embedder.embed_query("a")
    assert embedder.documents_cut == 1
    assert [message[:14] for message in caplog.messages] == ["1 of 1 queries"]


async def test_the_report_of_a_load_has_the_texts_that_were_cut(embedder, database_url, tmp_path, capsys):
    (tmp_path / "long.txt").write_text("the key " * 40)
    (tmp_path / "short.txt").write_text("a")
    async with PostgreSQLRetriever(database_url, embedder, "none") as retriever:
        report = await retriever.index(tmp_path, chunk_tokens=500, overlap_tokens=0)
        assert (report.embedded, report.cut) == (2, 1)
        again = await retriever.index(tmp_path, chunk_tokens=500, overlap_tokens=0)
        assert (again.embedded, again.cut) == (0, 0)
    for told, lines in ((report, ["note:"]), (again, [])):
        print_report(told)
        assert [line[:5] for line in capsys.readouterr().err.splitlines()[1:]] == lines


def test_vectors_that_cannot_be_compared_and_a_closed_model_are_refused(folder, monkeypatch):
    embedder = opened(folder)
    embedder.embed_query("fox")
    monkeypatch.setattr(embedder, "_encode", lambda texts, *, is_query: np.full((len(texts), HIDDEN), np.nan))
    with pytest.raises(ModelError, match="not finite"):
        embedder.embed_query("fox")
    monkeypatch.undo()
    embedder.embed_query("fox")
    for _ in range(2):
        embedder.close()
    with pytest.raises(ModelError, match="was closed"):
        embedder.embed_query("fox")


def test_work_ends_between_batches(embedder, monkeypatch):
    flag, encode, encoded = cancellation.Flag(), embedder._encode, []

    def encode_once(texts, *, is_query):
        encoded.append(len(texts))
        flag.set()
        return encode(texts, is_query=is_query)

    monkeypatch.setattr(embedder, "_encode", encode_once)
    with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        embedder.embed_documents(["fox"] * 9)
    assert encoded == [4]


def test_tokens_are_those_of_the_model_or_words_where_its_tokenizer_is_not_readable(embedder, package, copy):
    assert embedder.counter_name.startswith("tokenizer/")
    counts = [len(package.tokenizer(text, add_special_tokens=False, verbose=False).input_ids) for text in SENTENCES]
    assert embedder.count_tokens(SENTENCES).tolist() == counts
    assert [len(embedder.token_offsets(text)) for text in SENTENCES] == counts
    (copy / "tokenizer.json").unlink()
    assert opened(copy).counter_name == "2*unicode-words/1"


def test_identity(folder, tmp_path, embedder):
    identity, expected = embedder.identity, (str(folder), HIDDEN, "query: ", True)
    assert (identity.model, identity.dimensions, identity.instruction, identity.normalised) == expected
    # Where the folder stands does not matter; what it holds does.
    copy = shutil.copytree(folder, tmp_path / folder.name)
    assert opened(copy).identity.key == identity.key
    (copy / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 32, "pooling_mode": "cls"}')
    assert opened(copy).identity.key != identity.key
    others = ({"dimensions": 4}, {"query_prompt": "q"}, {"document_prompt": "d"}, {"document_prompt": "e"})
    assert len({identity.key, *(opened(folder, **options).identity.key for options in others)}) == 5


def test_the_name_of_the_identity_leads_back(copy, embedder):
    again = choose_embedder(embedder.identity.model, device="cpu").model
    assert isinstance(again, SentenceTransformersEmbedder)
    assert again.identity.key == embedder.identity.key
    # A folder that another embedder here would run is told apart by its prefix.
    modules = copy / "modules.json"
    modules.write_text(modules.read_text().replace('"name": "0"', '"name": "StaticEmbedding"'))
    forced = choose_embedder(f"sentence-transformers:{copy}", device="cpu").model
    assert forced.identity.model == f"sentence-transformers:{copy}"
    assert choose_embedder(forced.identity.model, device="cpu").model.identity.key == forced.identity.key


def test_texts_and_parameters_that_are_refused(embedder, folder):
    for rows in ("text", [1], ["\ud800"]):
        with pytest.raises(ValidationError):
            embedder.embed_documents(rows)
    for options in ({"batch_size": 0}, {"batch_size": 1025}, {"dimensions": 0}, {"device": "tpu"}):
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            opened(folder, **options)
    with pytest.raises(ModelMismatchError, match=r"dimensions=33 was configured, but .* makes vectors of 32"):
        opened(folder, dimensions=HIDDEN + 1).embed_query("fox")


def test_unusable_models_and_a_missing_package_are_refused(copy, tmp_path, folder, monkeypatch):
    with pytest.raises(ModelNotFoundError):
        opened(tmp_path / "none")
    (copy / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="cannot be loaded"):
        opened(copy).embed_query("fox")
    (copy / "2_Dense").mkdir()
    (copy / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="is a pickle"):
        opened(copy)
    for content in ("", "[]", "{}", "[{}]", "17", None):
        (copy / "modules.json").unlink() if content is None else (copy / "modules.json").write_text(content)
        with pytest.raises(ModelError, match="is not a model of sentence-transformers"):
            opened(copy)
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'semlex\[sentence-transformers\]'"):
        opened(folder)


def test_code_of_a_model_is_not_run(copy, tmp_path):
    (copy / "own_code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Own: pass\n")
    modules = json.loads((copy / "modules.json").read_text())
    modules[1]["type"] = "own_code.Own"
    (copy / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="cannot be loaded"):
        opened(copy).embed_query("fox")
    assert not (tmp_path / "ran").exists()
