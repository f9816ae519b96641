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

LANGCHAIN_POSTGRES = "langchain-postgres==0.0.19"
HAYSTACK = ("pgvector-haystack==8.1.2", "haystack-ai==3.4.0")
LLAMA_INDEX = ("llama-index-vector-stores-postgres==0.9.0", "llama-index-core==0.14.25")
BM25S = ("bm25s==0.3.16", "PyStemmer==3.1.0")
# With the driver of its connector, and with the static vectors that semlex uses, too.
COCOINDEX = (
    "cocoindex[postgres]==1.0.26",
    "asyncpg==0.32.0",
    "wordllama==0.4.0.post1",
    "tokenizers==0.23.3",
    "safetensors==0.8.0",
)
QDRANT_EDGE = ("qdrant-edge-py==0.9.0", "numpy==2.4.6")
LANCEDB = ("lancedb==0.40.0", "numpy==2.4.6")
CHROMA = ("chromadb==1.5.9", "numpy==2.4.6")
SQLITE_VEC = ("sqlite-vec==0.1.9", "pysqlite3-binary==0.5.4.post2", "numpy==2.4.6")
SPLITTERS = ("langchain-text-splitters==1.1.3", "semantic-text-splitter==0.33.1", "tokenizers==0.23.3")

# Packages that are younger are not installed: a baseline stays the same.
AS_OF = "2026-11-24"


def langchain_python(state: Path) -> Path:
    """Interpreter of the environment with langchain-postgres."""
    return state / "langchain" / "bin" / "python"


def haystack_python(state: Path) -> Path:
    """Interpreter of the environment with Haystack and its store on pgvector."""
    return state / "haystack" / "bin" / "python"


def llama_index_python(state: Path) -> Path:
    """Interpreter of the environment with LlamaIndex and its store on pgvector."""
    return state / "llama_index" / "bin" / "python"


def bm25s_python(state: Path) -> Path:
    """Interpreter of the environment with bm25s."""
    return state / "bm25s" / "bin" / "python"


def cocoindex_python(state: Path) -> Path:
    """Interpreter of the environment with CocoIndex."""
    return state / "cocoindex" / "bin" / "python"


def qdrant_edge_python(state: Path) -> Path:
    """Interpreter of the environment with Qdrant Edge."""
    return state / "qdrant_edge" / "bin" / "python"


def lancedb_python(state: Path) -> Path:
    """Interpreter of the environment with LanceDB."""
    return state / "lancedb" / "bin" / "python"


def chroma_python(state: Path) -> Path:
    """Interpreter of the environment with Chroma."""
    return state / "chroma" / "bin" / "python"


def sqlite_vec_python(state: Path) -> Path:
    """Interpreter of the environment with sqlite-vec and an SQLite that loads it."""
    return state / "sqlite_vec" / "bin" / "python"


def splitters_python(state: Path) -> Path:
    """Interpreter of the environment with langchain-text-splitters and semantic-text-splitter."""
    return state / "splitters" / "bin" / "python"


def prepare(state: Path) -> None:
    """Makes what is missing."""
    _install(langchain_python(state), LANGCHAIN_POSTGRES, "psycopg[binary]")
    _install(haystack_python(state), *HAYSTACK, "psycopg[binary]")
    _install(llama_index_python(state), *LLAMA_INDEX, "psycopg[binary]")
    _install(bm25s_python(state), *BM25S)
    _install(cocoindex_python(state), *COCOINDEX)
    _install(qdrant_edge_python(state), *QDRANT_EDGE)
    _install(lancedb_python(state), *LANCEDB)
    _install(chroma_python(state), *CHROMA)
    _install(sqlite_vec_python(state), *SQLITE_VEC)
    _install(splitters_python(state), *SPLITTERS)
    prepare_corpus(state)
    prepare_tokenizer(state)


def _install(python: Path, *packages: str) -> None:
    """Packages of one day into the environment of that interpreter, which is made first if it does not exist."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    if not python.exists():
        print(f"installing {packages[0]} into an environment of its own", file=sys.stderr)
        subprocess.run([*uv, "venv", str(python.parent.parent)], check=True)
    subprocess.run([*uv, "pip", "install", "--python", str(python), "--exclude-newer", AS_OF, *packages], check=True)
