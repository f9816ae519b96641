"""Recall of the vector index.

Texts have static vectors of 256 dimensions, queries are sentences of other texts, and the true ten nearest are those of
an exact comparison. "Default" is a search as it is without options; the other lines set the size of the index's
candidate list. Processor time is that of one search: of the program, and of the server's processes.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benches.corpus import corpus_of
from benches.peer_process import server
from benches.search import drop
from benches.servers import vacuum
from semlex import Document, PostgreSQLRetriever
from semlex.embedding.static import StaticEmbedder

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benches.measuring import Bench
    from benches.peer_process import Server
    from semlex.types.results import SearchMode

COLLECTION = "recall"
ROWS, QUICK_ROWS, QUERIES, WARMING, TOP = 100_000, 12_000, 400, 40, 10
EF_SEARCH = (40, 80, 100, 160, 200)
LOADED_AT_ONCE = 10_000
SEED = 3
BAR = 0.96
DEFAULT = "vector search, default"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
MIN_WORDS, MAX_WORDS = 7, 13


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions with their vectors and the numbers of the nearest rows."""

    texts: list[str]
    vectors: NDArray[np.float32]
    nearest: list[set[int]]


@dataclass(frozen=True, slots=True)
class Measured:
    """Recall, and milliseconds of the processor of one search: the program's and the server's."""

    recall: float
    program: float
    server: float


def run(bench: Bench, *, quick: bool, state: Path, data: Path | None = None) -> None:
    """Takes the figures."""
    rows = QUICK_ROWS if quick else ROWS
    corpus = corpus_of(state)
    if data is None and not corpus.exists:
        bench.unmeasured(f"{DEFAULT}, recall@{TOP}", "", BAR, "run ./x bench --prepare, or give --data FILE")
        return
    texts = json.loads(data.read_text()) if data is not None else corpus.chunks(rows + QUERIES * 10)
    random.Random(SEED).shuffle(texts)
    folder = state / "recall"
    folder.mkdir(parents=True, exist_ok=True)
    with server(folder, tuned=False) as running:
        for name, figures in asyncio.run(measured(running, texts[:rows], texts[rows:])).items():
            bench.at_least(f"{name}, recall@{TOP}", figures.recall, unit="", bar=BAR if name == DEFAULT else None)
            bench.at_most(f"{name}, processor, program", figures.program, unit="ms", bar=None)
            bench.at_most(f"{name}, processor, server", figures.server, unit="ms", bar=None)


async def measured(server: Server, texts: list[str], others: list[str]) -> dict[str, Measured]:
    """Every size of the list, by vectors alone and with words."""
    model = StaticEmbedder()
    vectors = model.embed_documents(texts)
    questions = [sentence for text in others for sentence in sentences(text)[:1]][:QUERIES]
    asked = np.stack([model.embed_query(question) for question in questions])
    nearest = [set(np.argsort(-(vectors @ one))[:TOP].tolist()) for one in asked]
    await drop(server.url, COLLECTION)
    async with PostgreSQLRetriever(server.url, "none", "none", collection=COLLECTION) as retriever:
        for start in range(0, len(texts), LOADED_AT_ONCE):
            part = range(start, min(start + LOADED_AT_ONCE, len(texts)))
            documents = [Document(texts[row], id=str(row)) for row in part]
            await retriever.add_documents(documents, vectors[part.start : part.stop])
    async with PostgreSQLRetriever(server.url, "none", "none", collection=COLLECTION) as retriever:
        await retriever.indexes.create()
        vacuum(server.url)
        searches = Asked(questions, asked, nearest)
        found = {DEFAULT: await one(server, retriever, searches, None, "vector")}
        for size in EF_SEARCH:
            found[f"vector search, ef_search {size}"] = await one(server, retriever, searches, size, "vector")
        found["hybrid search, ef_search 40"] = await one(server, retriever, searches, EF_SEARCH[0], "hybrid")
        found["hybrid search, default"] = await one(server, retriever, searches, None, "hybrid")
    return found


async def one(
    server: Server, retriever: PostgreSQLRetriever, asked: Asked, ef_search: int | None, mode: SearchMode
) -> Measured:
    """All questions, one after another, everything warm."""
    options = {} if ef_search is None else {"tuning": {"ef_search": ef_search}}

    async def search(number: int) -> set[int]:
        hits = await retriever.search(asked.texts[number], TOP, vector=asked.vectors[number], mode=mode, **options)
        return {int(hit.id) for hit in hits}

    for number in range(WARMING):
        await search(number)
    program, on_server = time.process_time(), server.processor()
    answers = [await search(number) for number in range(len(asked.texts))]
    program, on_server = time.process_time() - program, server.processor() - on_server
    shares = [len(hits & wanted) / TOP for hits, wanted in zip(answers, asked.nearest, strict=True)]
    each = 1000 / len(answers)
    return Measured(float(np.mean(shares)), program * each, on_server * each)


def sentences(text: str) -> list[str]:
    """Those of a question's length, without quotes, which would require a phrase."""
    parts = _SENTENCE_END.split(text)
    return [part for part in parts if MIN_WORDS <= len(part.split()) <= MAX_WORDS and not set(part) & set('"“”')]
