"""A WSGI application whose retriever is opened before gunicorn forks its workers."""

import json
import os

from semlex import SyncRetriever
from semlex.errors import SemlexError

settings = json.loads(os.environ["PRELOADED_APP"])
retriever = SyncRetriever(embedding_model=settings["model"], use_reranking=False, **settings["options"])
retriever.initialize()
retriever.add_texts(["said by the parent"], ids=["parent"])
retriever.search("said by the parent", 1)


def application(_environment, start):
    try:
        found = [hit.id for hit in retriever.search("said by the parent", 1)]
    except SemlexError as error:
        found = [f"{type(error).__name__}: {error}"]
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"process": os.getpid(), "parent": os.getppid(), "found": found}).encode()]
