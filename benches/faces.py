"""Frameworks.

What a search takes longer through a framework's class than as a call of the library: the median over 2,000 pairs.
Hybrid search of 1,000 chunks, ten results, the questions' vectors cached.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from typing import TYPE_CHECKING

from benches.measuring import Bench, paired
from benches.servers import temporary_server, vacuum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOCUMENTS, QUESTIONS, TOP = 1_000, 50, 10
BAR_MILLISECONDS = 2.0


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    del state
    from semlex import SyncRetriever
    from semlex.integrations.langchain import SemlexRetriever, SemlexVectorStore
    from semlex.testing import HashEmbedder

    draw = random.Random(17)
    words = [f"word{number}" for number in range(2_000)]
    texts = [" ".join(draw.choices(words, k=80)) for _ in range(DOCUMENTS)]
    questions = [" ".join(draw.choices(words, k=6)) for _ in range(QUESTIONS)]
    runs = 400 if quick else 2_000
    print(f"  {DOCUMENTS:,} documents, {QUESTIONS} questions, the best {TOP}, vectors of the questions kept")
    with temporary_server() as url, SyncRetriever(url, HashEmbedder(256), use_reranking=False) as collection:
        collection.add_texts(texts, metadata=[{"n": number, "lang": "en"} for number in range(DOCUMENTS)])
        vacuum(url)

        def library(question: str) -> object:
            return collection.search(question, TOP)

        retriever = SemlexRetriever(collection=collection, k=TOP)
        store = SemlexVectorStore(collection=collection)
        loop = asyncio.Runner()

        async def several(question: str) -> object:
            return await retriever.ainvoke(question)

        with loop:
            faces: dict[str, Callable[[str], object]] = {
                "LangChain: retriever": retriever.invoke,
                "LangChain: retriever, await": lambda question: loop.run(several(question)),
                "LangChain: vector store": lambda question: store.similarity_search(question, TOP),
            }
            for name, face in faces.items():
                milliseconds, alone = _added(library, face, questions, runs)
                bench.at_most(f"{name}, added", milliseconds, unit="ms", bar=BAR_MILLISECONDS)
                print(f"    beside {alone:.2f} ms of the call itself", flush=True)


def _added(
    library: Callable[[str], object], face: Callable[[str], object], questions: list[str], runs: int
) -> tuple[float, float]:
    """What a call through a face takes longer: the median over pairs; and the median of the library's calls; in ms."""
    for question in questions:
        library(question), face(question)
    # Each pair asks one question; both see the same one because each counts its own calls.
    turns = [iter(questions[number % len(questions)] for number in range(runs + 1)) for _ in range(2)]
    ours, alone = paired(lambda: face(next(turns[0])), lambda: library(next(turns[1])), runs)
    pairs = [1000 * (one - other) for one, other in zip(ours, alone, strict=True)]
    return statistics.median(pairs), 1000 * statistics.median(alone)
