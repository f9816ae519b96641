"""Settings drawn at random, and the forms in which people write them; a world of its own for each reading."""

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import strategies as st

from semlex.settings.table import SECTIONS, SETTINGS

LETTERS = st.characters(exclude_categories=("Cc", "Cs"))
TEXTS = st.text(LETTERS, min_size=1, max_size=12).filter(lambda text: text == text.strip())
PATHS = st.text("abc é'\"\\", min_size=1, max_size=8).map(lambda name: Path("/srv") / name)
MODELS = st.sampled_from(["static", "none", "openai:x", "http://127.0.0.1:1/v1#m", "a/b:c"])
VALUES = {
    **dict.fromkeys(("data_dir", "calibration", "fallback_folder"), PATHS),
    **dict.fromkeys(("embedding_model", "reranker_model"), MODELS),
    **dict.fromkeys(("chat_model", "enrichment_model"), st.just("openai:gpt")),
    **dict.fromkeys(("keep_alive", "rrf_k"), st.floats(0, 1e6)),
    **dict.fromkeys(("max_file_mib", "max_document_mib"), st.integers(1, 1024)),
    **dict.fromkeys(("overlap_tokens", "min_tokens"), st.integers(0, 500)),
    **dict.fromkeys(("stop_words", "rewrite", "use_database"), st.booleans()),
    "read_from": st.sampled_from(["primary", "replica"]),
    "models": st.lists(MODELS, min_size=1, max_size=3).map(tuple),
    "dimensions": st.integers(1, 4000),
    "device": st.sampled_from(["mps", "cuda", "cpu"]),
    "vector_storage": st.sampled_from(["vector", "halfvec"]),
    "vector_index": st.sampled_from(["hnsw", "ivfflat", "none"]),
    "hnsw_m": st.integers(2, 100),
    "hnsw_ef_construction": st.integers(4, 1000),
    "chunk_tokens": st.integers(16, 2000),
    "partitions": st.just(0) | st.integers(2, 64),
    "top_k": st.integers(1, 1000),
    "mode": st.sampled_from(["vector", "keyword", "hybrid"]),
    "fusion": st.sampled_from(["score", "rrf", "linear"]),
    "hybrid_weight": st.floats(0, 1),
    "oversampling": st.floats(1, 100),
    "min_similarity": st.floats(-1, 1),
    "route": st.sampled_from(["rules", "chat"]),
    "use_reranking": st.sampled_from([True, False, "auto"]),
    "query_log": st.sampled_from(["off", "hash", "text"]),
}
NAMES = [setting.name for setting in SETTINGS]
SETTINGS_DRAWN = st.lists(st.sampled_from(NAMES), unique=True, max_size=12).flatmap(
    lambda names: st.fixed_dictionaries({name: VALUES.get(name, TEXTS) for name in names})
)


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def flat(values):
    return "".join(f"{name} = {toml(value)}\n" for name, value in values.items())


def in_sections(values, key=0, above=""):
    lines = []
    for section, keys in SECTIONS.items():
        lines.append(f"[{above}{section}]")
        for name, value in values.items():
            names = [one for one, setting in keys.items() if setting.name == name]
            lines += [f"{names[key % len(names)]} = {toml(value)}"] if names else []
    return "\n".join(lines) + "\n"


def as_json(values):
    """The ``rag`` section of a settings.json."""

    def camel(name):
        first, *others = name.split("_")
        return first + "".join(other.capitalize() for other in others)

    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    return json.dumps({"other": {"top_k": "x"}, "rag": {camel(name): value for name, value in plain.items()}})


def variables(values):
    return {
        f"SEMLEX_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in values.items()
    }


@contextmanager
def world(environment=None, own="", files=None, name="config.toml"):
    """A working directory with files, an own settings file, and an environment without other settings."""
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        for variable in list(os.environ):
            if variable.startswith(("SEMLEX_", "RAG_", "PG")) or variable == "DATABASE_URL":
                patch.delenv(variable)
        folder = Path(made).resolve() / "working"
        folder.mkdir()
        (folder.parent / name).write_text(own, encoding="utf-8")
        patch.setenv("SEMLEX_CONFIG", str(folder.parent / name))
        for variable, value in (environment or {}).items():
            patch.setenv(variable, value)
        for file, content in (files or {}).items():
            (folder / file).write_text(content, encoding="utf-8")
        patch.chdir(folder)
        yield folder
