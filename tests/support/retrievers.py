"""Retrievers of tests: small vectors or none, no reranking, unless a test says otherwise."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from semlex import Document, PostgreSQLRetriever, SearchResult, SearchResults, SyncRetriever
from semlex.clock import SYSTEM, Clock
from semlex.store.postgres.database import Database
from semlex.testing import HashEmbedder


def _options(model: Any, reranker: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "embedding_model": HashEmbedder(model) if isinstance(model, int) else model,
        "reranker_model": reranker,
        "use_reranking": reranker is not None,
        **options,
    }


def opened(
    url: str | None = None, model: Any = 8, reranker: Any = None, *, clock: Clock = SYSTEM, **options: Any
) -> PostgreSQLRetriever:
    """A retriever for ``async with``; a number is the length of hashed vectors, "none" means no vectors."""
    made = PostgreSQLRetriever(url, **_options(model, reranker, options))
    resources = made._resources
    resources.clock = resources.query_log.clock = clock
    return made


def sync_opened(url: str | None = None, model: Any = 8, reranker: Any = None, **options: Any) -> SyncRetriever:
    """The same for ``with``."""
    return SyncRetriever(url, **_options(model, reranker, options))


def _documents(texts: dict[str, str] | list[Document]) -> list[Document]:
    return [Document(text, id=name) for name, text in texts.items()] if isinstance(texts, dict) else texts


@asynccontextmanager
async def filled(
    url: str | None, texts: dict[str, str] | list[Document], model: Any = 8, reranker: Any = None, **options: Any
) -> AsyncIterator[PostgreSQLRetriever]:
    """A retriever whose collection has these documents, or texts by id."""
    async with opened(url, model, reranker, **options) as retriever:
        await retriever.add_documents(_documents(texts))
        yield retriever


@contextmanager
def sync_filled(
    url: str | None, texts: dict[str, str] | list[Document], model: Any = 8, reranker: Any = None, **options: Any
) -> Iterator[SyncRetriever]:
    """The same for ``with``."""
    with sync_opened(url, model, reranker, **options) as retriever:
        retriever.add_documents(_documents(texts))
        yield retriever


def ids_of(results: Iterable[SearchResult]) -> list[str]:
    return [hit.id for hit in results]


def plain(results: SearchResults) -> dict[str, Any]:
    """What is the same for every search that finds the same."""
    left_out = ("timings", "query_cached", "legs")
    return {name: value for name, value in results.to_dict().items() if name not in left_out}


def openings(patch: pytest.MonkeyPatch) -> list[Database]:
    """The databases that are opened from now on."""
    attempts: list[Database] = []
    real = Database.open

    async def counted(self: Database) -> None:
        attempts.append(self)
        await real(self)

    patch.setattr(Database, "open", counted)
    return attempts


def arguments_in(remedy: str | None) -> dict[str, Any]:
    """The arguments of a search that a remedy names."""
    found: dict[str, Any] = {
        key: int(value) for key, value in re.findall(r"(top_k|max_results|group_size)=(\d+)", remedy or "")
    }
    if depth := re.search(r"tuning=\{'candidates': (\d+)\}", remedy or ""):
        found["tuning"] = {"candidates": int(depth[1])}
    return found
