"""What benchmarks need, made once: a corpus, a tokenizer, and environments of the baselines.

The environments must not change what semlex itself is installed with.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from benches.corpus import prepare_corpus
from benches.training import prepare_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

# Name -> packages.
ENVIRONMENTS = {
    "langchain": ("langchain-postgres==0.0.19", "psycopg[binary]"),
    "haystack": ("pgvector-haystack==8.1.2", "haystack-ai==3.4.0", "psycopg[binary]"),
    "llama_index": ("llama-index-vector-stores-postgres==0.9.0", "llama-index-core==0.14.25", "psycopg[binary]"),
    "bm25s": ("bm25s==0.3.16", "PyStemmer==3.1.0"),
    # With the driver of its connector, and with the static vectors that semlex uses, too.
    "cocoindex": (
        "cocoindex[postgres]==1.0.26",
        "asyncpg==0.32.0",
        "wordllama==0.4.0.post1",
        "tokenizers==0.23.3",
        "safetensors==0.8.0",
    ),
    # With what semlex needs, whose sources are used as they are.
    "ray": (
        "ray[data]==2.60.0",
        "pyarrow==26.0.1",
        "psycopg[binary]",
        "psycopg-pool",
        "httpx2",
        "platformdirs",
        "rich",
        "typer",
        "wordllama==0.4.0.post1",
        "tokenizers==0.23.3",
        "model2vec",
    ),
    "qdrant_edge": ("qdrant-edge-py==0.9.0", "numpy==2.4.6"),
    "lancedb": ("lancedb==0.40.0", "numpy==2.4.6"),
    "chroma": ("chromadb==1.5.9", "numpy==2.4.6"),
    "sqlite_vec": ("sqlite-vec==0.1.9", "pysqlite3-binary==0.5.4.post2", "numpy==2.4.6"),
    "splitters": ("langchain-text-splitters==1.1.3", "semantic-text-splitter==0.33.1", "tokenizers==0.23.3"),
}

# Packages that are younger are not installed: a baseline stays the same.
AS_OF = "2026-11-24"


def python_of(state: Path, environment: str) -> Path:
    """The interpreter of an environment, which may not exist yet."""
    return state / environment / "bin" / "python"


def prepare(state: Path) -> None:
    """Makes what is missing."""
    for environment, packages in ENVIRONMENTS.items():
        _install(python_of(state, environment), *packages)
    prepare_corpus(state)
    prepare_tokenizer(state)


def _install(python: Path, *packages: str) -> None:
    """Packages of one day into the environment of that interpreter, which is made first if it does not exist."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    if not python.exists():
        print(f"installing {packages[0]} into an environment of its own", file=sys.stderr)
        subprocess.run([*uv, "venv", str(python.parent.parent)], check=True)
    subprocess.run([*uv, "pip", "install", "--python", str(python), "--exclude-newer", AS_OF, *packages], check=True)
