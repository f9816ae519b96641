"""A WSGI application whose retriever is opened before gunicorn forks its workers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from semlex import SyncRetriever
from semlex.errors import SemlexError

settings = json.loads(os.environ["PRELOADED_APP"])
retriever = SyncRetriever(embedding_model=settings["model"], use_reranking=False, **settings["options"])
retriever.initialize()
retriever.add_texts(["said by the parent"], ids=["parent"])
retriever.search("said by the parent", 1)


def application(_environment: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], Any]) -> Iterable[bytes]:
    try:
        found = [hit.id for hit in retriever.search("said by the parent", 1)]
    except SemlexError as error:
        found = [f"{type(error).__name__}: {error}"]
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"process": os.getpid(), "parent": os.getppid(), "found": found}).encode()]
