"""Run by the interpreter of the baseline's environment: CocoIndex brings a table with pgvector in step with a folder.

python cocoindex_ingest.py FOLDER URL STATE

One start is one update. CocoIndex keeps what it knows in the folder STATE, so a second start finds nothing changed, and
one after a change of a file finds that. The program prints one JSON object as its last line: `import_seconds`,
`start_seconds` (pool, model and state opened), `run_seconds` (wall time of the update), `processor_seconds` (that this
process used in it, without the server), `files`, `unchanged` (of those), and `chunks` (rows of the table afterwards).

The flow is that of CocoIndex's own example of text embedding: its splitter, generated keys, texts embedded in batches,
a vector index, as many files at the same time as it takes by itself (fewer were no faster). Chunks of 2,000 bytes share
200, which is about what 500 and 50 tokens come to. Unlike there, vectors of single chunks are not remembered: files
that did not change are left out as a whole, and a first run would take a tenth more of the processor's time.
"""

# ruff: noqa: E402
import os
import time

started = time.perf_counter()
os.environ["COCOINDEX_DISABLE_USAGE_TRACKING"] = "1"  # read by the import

import asyncio
import json
import pathlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

import asyncpg
import cocoindex as coco
import numpy as np
from cocoindex.connectors import localfs, postgres
from cocoindex.ops.text import RecursiveSplitter, detect_code_language
from cocoindex.resources.chunk import Chunk
from cocoindex.resources.file import FileLike, PatternFilePathMatcher
from cocoindex.resources.id import IdGenerator
from cocoindex.resources.schema import VectorSchema
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import_seconds = time.perf_counter() - started

PATTERNS = ["**/*.rst", "**/*.md", "**/*.html", "**/*.txt"]
CHUNK_BYTES, OVERLAP_BYTES = 2000, 200
TEXTS_PER_CALL = 64
COUNT = "SELECT count(*) FROM cocoindex.chunk"


class StaticEmbedder:
    """Means of the token vectors in the wheel wordllama: what semlex stores for these texts, to the seventh digit."""

    def __init__(self) -> None:
        folder = pathlib.Path(find_spec("wordllama").origin).parent
        rows = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
        self._rows = rows.astype(np.float32)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @coco.fn.as_async(batching=True, max_batch_size=TEXTS_PER_CALL)
    def embed(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """Whoever asks for one text waits for one vector; CocoIndex gathers those who ask at the same time."""
        vectors = np.zeros((len(texts), self._rows.shape[1]), dtype=np.float32)
        for row, encoding in enumerate(self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)):
            ids = np.array(encoding.ids, dtype=np.int64)
            if ids.size:
                vectors[row] = self._rows[ids].mean(axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return list(np.divide(vectors, lengths, out=vectors, where=lengths > 0))

    async def __coco_vector_schema__(self) -> VectorSchema:
        return VectorSchema(dtype=np.dtype(np.float32), size=self._rows.shape[1])

    def __coco_memo_key__(self) -> object:
        return "static"


DATABASE = coco.ContextKey[asyncpg.Pool]("database")
EMBEDDER = coco.ContextKey[StaticEmbedder]("embedder", detect_change=True)
_splitter = RecursiveSplitter()


@dataclass
class Row:
    """A row of the table."""

    id: int
    filename: str
    chunk_start: int
    chunk_end: int
    text: str
    embedding: Annotated[NDArray, EMBEDDER]


@coco.fn
async def process_chunk(
    chunk: Chunk, filename: pathlib.PurePath, ids: IdGenerator, table: postgres.TableTarget[Row]
) -> None:
    """One row."""
    row = Row(
        id=await ids.next_id(chunk.text),
        filename=str(filename),
        chunk_start=chunk.start.char_offset,
        chunk_end=chunk.end.char_offset,
        text=chunk.text,
        embedding=await coco.use_context(EMBEDDER).embed(chunk.text),
    )
    table.declare_row(row=row)


@coco.fn(memo=True)
async def process_file(file: FileLike, table: postgres.TableTarget[Row]) -> None:
    """The rows of a file; not called for one that did not change."""
    path = file.file_path.path
    chunks = _splitter.split(
        await file.read_text(),
        chunk_size=CHUNK_BYTES,
        chunk_overlap=OVERLAP_BYTES,
        language=detect_code_language(filename=path.name),
    )
    await coco.map(process_chunk, chunks, path, IdGenerator(), table)


@coco.fn
async def process_folder(folder: pathlib.Path) -> None:
    """The table, and all files below the folder."""
    schema = await postgres.TableSchema.from_class(Row, primary_key=["id"])
    table = await postgres.mount_table_target(DATABASE, "chunk", schema, pg_schema_name="cocoindex")
    table.declare_vector_index(column="embedding")
    files = localfs.walk_dir(folder, recursive=True, path_matcher=PatternFilePathMatcher(included_patterns=PATTERNS))
    await coco.mount_each(process_file, files.items(), table)


async def main(folder: pathlib.Path, url: str, state: pathlib.Path) -> None:
    """Updates once, and prints."""
    pools = []

    @coco.lifespan
    async def _opened(builder: coco.EnvironmentBuilder) -> AsyncIterator[None]:
        builder.settings.db_path = state
        async with asyncpg.create_pool(url) as pool:
            pools.append(pool)
            builder.provide(DATABASE, pool)
            builder.provide(EMBEDDER, StaticEmbedder())
            yield

    app = coco.App("ingest", process_folder, folder)
    before = time.perf_counter()
    async with coco.runtime():
        start_seconds = time.perf_counter() - before
        processor, before = time.process_time(), time.perf_counter()
        update = app.update()
        await update
        run_seconds, processor = time.perf_counter() - before, time.process_time() - processor
        (pool,) = pools
        chunks = await pool.fetchval(COUNT)
    stats = update.stats()
    if stats.total.num_errors:  # it logs them and goes on
        raise SystemExit(f"CocoIndex left {stats.total.num_errors} files out; its log above says why")
    files = stats.by_component["process_file"]
    measured = {
        "import_seconds": import_seconds,
        "start_seconds": start_seconds,
        "run_seconds": run_seconds,
        "processor_seconds": processor,
        "files": files.num_processed - files.num_deletes,
        "unchanged": files.num_unchanged,
        "chunks": chunks,
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    asyncio.run(main(pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])))
