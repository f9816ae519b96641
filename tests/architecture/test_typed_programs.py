"""A type checker finds what is misspelt or of a wrong type in a user's program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import semlex

ROOT = Path(semlex.__file__).parent.parent.parent
RIGHT = """
import psycopg

from semlex import F, FilterTree, SearchResults
from semlex import Client, CollectionOptions, Document, PostgreSQLRetriever, SyncClient, SyncRetriever, connect_sync

with SyncRetriever("postgresql://", "static", collection="handbook", language="english") as retriever:
    ids: list[str] = retriever.add_documents([Document("text", {"year": 2026}, "a")], on_duplicate="skip")
    hits = retriever.search("question", 3, {"year": 2026}, mode="hybrid", rerank=False)
    best: float | None = hits[0].vector_score
    tree: FilterTree = (F("year") >= 2026) & ~F("tags").contains("draft") | (F("lang") == "de")
    found = retriever.search("question", filters=tree).warnings + retriever.search("q", filters="year == 1").warnings
    print(found, retriever.count(tree), retriever.list_chunks({"year": {"$gte": 2026}}), retriever.delete(filters=tree))
    report = retriever.index("docs", include=["*.md"], chunk_tokens=300)
    print(report.added, retriever.count(), [chunk.id for chunk in retriever.list_chunks(limit=5)])
    page = retriever.search("question", max_results=200, group_by=None)
    print(retriever.search_page(page.next_cursor or "").next_cursor, retriever.search_many(["a", "b"])[1][0].id)
    print([document.hits[0].id for document in retriever.search("question", group_by="document").documents])
    print(retriever.fields.facets(["year"], "year > 2000")["year"].values[0].count)
    statement: str = retriever.tables.hits_as_sql(hits, include=["excerpt"])
    with psycopg.connect("postgresql://") as connection:
        print(retriever.tables.hits_into(connection, hits, "hits", include=["content", "metadata"]) + 1)
    retriever.index("docs", progress="bar")
    retriever.embeddings.fill(lambda step: print(step.stage, step.done))
with connect_sync("postgresql://") as client:
    book = client.collection("handbook", CollectionOptions(language="german", distance="l2"))
    print(book.search("question").warnings, book.get(["a"])[0].content)


async def asynchronous() -> None:
    async with Client("postgresql://") as client:
        print((await client.collection("handbook").search("question"))[0].rank)
        async with await psycopg.AsyncConnection.connect("postgresql://") as connection:
            await client.collection("handbook").tables.hits_into(connection, SearchResults(), "hits")
    async with PostgreSQLRetriever() as retriever:
        await retriever.add_texts(["a", "b"], ids=["b", 5])
"""
MISTAKES = """
from semlex import Client, CollectionOptions, SyncClient, SyncRetriever, connect_sync
from semlex import SyncRetreiver  # wrong

retriever = SyncRetriever("postgresql://", colection="handbook")  # wrong
retriever = SyncRetriever("postgresql://", dimensions="256")  # wrong
retriever = SyncRetriever("postgresql://", use_reranking="yes")  # wrong
retriever = SyncRetriever("postgresql://", distance="cosin")  # wrong
retriever.search("question", topk=3)  # wrong
retriever.search("question", "3")  # wrong
retriever.search("question", mode="both")  # wrong
retriever.search("question", fusion="rff")  # wrong
retriever.serach("question")  # wrong
retriever.search("question", group_by="chunk")  # wrong
retriever.search_page(retriever.search("question").next_cursor)  # wrong
retriever.search_many(3)  # wrong
retriever.fields.facets(["year"])["year"].value  # wrong
retriever.search("question")[0].scores  # wrong
retriever.search("question").hits  # wrong
retriever.add_documents("one text")  # wrong
retriever.add_documents([], on_duplicate="replace")  # wrong
retriever.add_texts(["a"], ids=[1.5])  # wrong
retriever.index("docs", chunk_tokens="300")  # wrong
retriever.index("docs", includes=["*.md"])  # wrong
retriever.delete(["a"], dryrun=True)  # wrong
retriever.list_chunks(limit="10")  # wrong
retriever.search("question", filters=["year"])  # wrong
retriever.count(F("year").cotnains(1))  # wrong
retriever.count((F("year") == 1) & {"year": 1})  # wrong
retriever.count(F("year").like(5))  # wrong
client = connect_sync("postgresql://", modles=["a"])  # wrong
client = SyncClient(keep_alive="5 minutes")  # wrong
book = client.collection("handbook", CollectionOptions(languge="german"))  # wrong
book = client.collection("handbook", {"language": "german"})  # wrong
book.reindex()  # wrong
count: str = book.count()  # wrong
book.index("docs", progress=True)  # wrong
book.index("docs", progress="bars")  # wrong
book.tables.hits_into("postgresql://", book.search("question"), "hits")  # wrong
book.tables.hits_as_sql(book.search("question"), include=["vector"])  # wrong
book.tables.hits_as_sql("question")  # wrong
Client("postgresql://", max_connections="8")  # wrong
"""


@pytest.mark.slow
def test_every_mistake_is_found_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "mistakes.py").write_text(MISTAKES, encoding="utf-8")
    # With the project's own settings, which are strict, what is known of the package is not worked out again.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", tmp_path / "right.py", tmp_path / "mistakes.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == ""
    found = {(file, int(line)) for file, line in re.findall(r"(\w+)\.py:(\d+): error: ", done.stdout)}
    expected = {("mistakes", number) for number, line in enumerate(MISTAKES.split("\n"), 1) if "# wrong" in line}
    assert len(expected) > 15
    assert found == expected, done.stdout
