"""A WSGI application whose retrievers, one for each model, are opened before gunicorn forks its workers."""

import json
import os

from semlex import SyncRetriever
from semlex.errors import SemlexError

settings = json.loads(os.environ["PRELOADED_APP"])
retrievers = [
    SyncRetriever(embedding_model=model, use_reranking=False, collection=f"words_{number}", **settings["options"])
    for number, model in enumerate(settings["models"])
]
for retriever in retrievers:
    retriever.add_texts(["said by the parent"], ids=["parent"])
    retriever.search("said by the parent", 1)


def search(retriever):
    try:
        return [hit.id for hit in retriever.search("said by the parent", 1)]
    except SemlexError as error:
        return [f"{type(error).__name__}: {error}"]


def application(_environment, start):
    found = [search(retriever) for retriever in retrievers]
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"process": os.getpid(), "parent": os.getppid(), "found": found}).encode()]
