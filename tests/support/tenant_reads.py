"""Every way to read a collection, and what can be told from the answers."""

import json

import pyarrow.parquet


async def _stream(collection, word):
    return [event async for event in collection.answer_stream(f"{word} number3?")]


async def _page(collection, word):
    first = await collection.search(word, 2, max_results=10)
    return [first, await collection.search_page(first.next_cursor or "")]


async def _dump(collection, folder):
    report = await collection.tables.dump(folder)
    tables = {path.name: pyarrow.parquet.read_table(path).to_pylist() for path in folder.glob("*.parquet")}
    return [report.chunks, tables, *(json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json"))]


def reads(folder):
    """What it is called -> the call, with a word to ask for; `folder` is for dumps, and not there yet."""
    return {
        "hybrid": lambda c, word: c.search(word),
        "vector": lambda c, word: c.search(word, mode="vector"),
        "keyword": lambda c, word: c.search(word, mode="keyword"),
        "filtered": lambda c, word: c.search(word, filters={"year": {"$gt": 3}}),
        "words filtered": lambda c, word: c.search(word, mode="keyword", filters="year > 3"),
        "late": lambda c, word: c.search(word, deadline=30.0),
        "explained": lambda c, word: c.search(word, explain=True, rerank=False),
        "grouped": lambda c, word: c.search(word, group_by="document"),
        "boosted": lambda c, word: c.search(word, boost=[("year > 3", 2.0)], fusion="rrf"),
        "nothing passes": lambda c, word: c.search(word, filters={"yaer": 3}),
        "pages": _page,
        "many": lambda c, word: c.search_many([word, f"{word} number2"]),
        "get": lambda c, word: c.get([f"{word}1", f"{word}2"]),
        "list": lambda c, _: c.list_chunks(limit=1000),
        "list filtered": lambda c, _: c.list_chunks("year == 1"),
        "count": lambda c, _: c.count(),
        "count filtered": lambda c, _: c.count("year > 3"),
        "facets": lambda c, _: c.fields.facets(["year", "word"]),
        "facets of a query": lambda c, word: c.fields.facets(["word"], query=word),
        "fields": lambda c, _: c.fields.list(values=True),
        "why": lambda c, word: c.why(f"{word}1", word),
        "why missing": lambda c, word: c.why(f"{word} is nowhere", word),
        "why of a file": lambda c, word: c.why(f"{word}.md", word),
        "context": lambda c, word: c.context(word),
        "diverse context": lambda c, word: c.context(word, diversity=0.5),
        "answer": lambda c, word: c.answer(f"{word} number3?"),
        "streamed answer": _stream,
        "status": lambda c, _: c.status(),
        "exact status": lambda c, _: c.status(exact=True),
        "sources": lambda c, _: c.documents.sources(),
        "documents": lambda c, _: c.documents.list(),
        "embeddings": lambda c, _: c.embeddings.list(),
        "dump": lambda c, _: _dump(c, folder),
        "delete, counted": lambda c, word: c.delete([f"{word}1"], dry_run=True),
    }


def told(answer):
    """All that an answer tells, as text."""
    parts = map(told, answer) if isinstance(answer, (list, tuple)) else ()
    as_dict = repr(answer.to_dict()) if hasattr(answer, "to_dict") else ""
    return " ".join((repr(answer), repr(getattr(answer, "__dict__", {})), *parts, as_dict))
