"""Chunk descriptions.

640 chunks are described by a language model on a server that takes 50 ms for each.
"""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING

from semlex import Enrichment, OpenAIChatModel, SyncRetriever
from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.support.chat_servers import chat_server

if TYPE_CHECKING:
    from pathlib import Path

    from benches.measuring import Bench
    from tests.support.model_servers import Request

ANSWER_SECONDS = 0.05
CHUNKS = 640
AT_ONCE = 16
# Of the requests alone: 16 at a time are 16 times as fast; embedding and writing go on meanwhile.
SPEEDUP_BAR = 5.0


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures, with static embeddings."""
    count = CHUNKS // 5 if quick else CHUNKS
    texts = [f"Chunk number {row} says how often key {row % 7} is rotated, and by whom." for row in range(count)]
    speeds = {}
    shutil.rmtree(state / "enrich", ignore_errors=True)
    with EmbeddedServer(state / "enrich") as server, chat_server(_said) as double:
        for at_once in (1, AT_ONCE):
            model = OpenAIChatModel("small", f"{double.url}/v1", api_key="none")
            with SyncRetriever(server.url, "static", None, use_reranking=False, collection=f"c{at_once}") as retriever:
                retriever.add_texts(texts)
                started = time.perf_counter()
                report = retriever.documents.enrich(Enrichment(model, concurrency=at_once))
                speeds[at_once] = report.written / (time.perf_counter() - started)
            model.close()
    bench.at_least("one request at a time", speeds[1], unit="chunks/s", bar=None)
    bench.at_least(f"{AT_ONCE} at a time", speeds[AT_ONCE], unit="chunks/s", bar=None)
    bench.at_least("times as fast", speeds[AT_ONCE] / speeds[1], unit="", bar=SPEEDUP_BAR)


def _said(_: Request) -> str:
    time.sleep(ANSWER_SECONDS)
    return json.dumps({"line": "How often secrets are renewed, and who does it."})
