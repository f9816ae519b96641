"""Retrievers of tests: small vectors or none, no reranking, unless a test says otherwise."""

import re
from contextlib import asynccontextmanager, contextmanager

from semlex import Document, PostgreSQLRetriever, SyncRetriever
from semlex.clock import SYSTEM
from semlex.testing import HashEmbedder


def _options(model, reranker, options):
    model = HashEmbedder(model) if isinstance(model, int) else model
    return {"embedding_model": model, "reranker_model": reranker, "use_reranking": reranker is not None, **options}


def opened(url=None, model=8, reranker=None, *, clock=SYSTEM, **options):
    """A retriever for ``async with``; a number is the length of hashed vectors, "none" means no vectors."""
    made = PostgreSQLRetriever(url, **_options(model, reranker, options))
    resources = made._resources
    resources.clock = resources.query_log.clock = clock
    return made


def sync_opened(url=None, model=8, reranker=None, **options):
    """The same for ``with``."""
    return SyncRetriever(url, **_options(model, reranker, options))


def _documents(texts):
    return [Document(text, id=name) for name, text in texts.items()] if isinstance(texts, dict) else texts


@asynccontextmanager
async def filled(url, texts, model=8, reranker=None, *, vectors=None, **options):
    """A retriever whose collection has these documents, or texts by id, with the model's vectors or these."""
    async with opened(url, model, reranker, **options) as retriever:
        await retriever.add_documents(_documents(texts), vectors)
        yield retriever


@contextmanager
def sync_filled(url, texts, model=8, reranker=None, *, vectors=None, **options):
    """The same for ``with``."""
    with sync_opened(url, model, reranker, **options) as retriever:
        retriever.add_documents(_documents(texts), vectors)
        yield retriever


def ids_of(results):
    return [hit.id for hit in results]


def pages(retriever, *arguments, **options):
    found = [retriever.search(*arguments, **options)]
    while found[-1].next_cursor is not None:
        found.append(retriever.search_page(found[-1].next_cursor))
    return found


def plain(results):
    """What is the same for every search that finds the same."""
    left_out = ("timings", "query_cached", "legs")
    return {name: value for name, value in results.to_dict().items() if name not in left_out}


def arguments_in(remedy):
    """The arguments of a search that a remedy names."""
    found = {key: int(value) for key, value in re.findall(r"(top_k|max_results|group_size)=(\d+)", remedy or "")}
    if depth := re.search(r"tuning=\{'candidates': (\d+)\}", remedy or ""):
        found["tuning"] = {"candidates": int(depth[1])}
    return found
