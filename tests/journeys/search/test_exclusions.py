"""What a query excludes with ``-word`` is left out however the answer comes about."""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from semlex.retriever.json_fallback import JSONKBRetriever
from semlex.types.documents import Document
from tests.support.retrievers import opened
from tests.support.waiting import eventually, held

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    from semlex import PostgreSQLRetriever

POSTINGS = "semlex.fruit_posting"
COUNT = 160
FILLER = ("pear", "plum", "electric", "car", "cars", "tree", "lamp", "desk")
QUESTIONS = ("apple -secret", 'apple tree -"electric car"', '-secret apple -"electric car" -lamp')


def texts() -> dict[str, str]:
    """Most of them hold an excluded word, and those are nearest to the questions."""
    chance, made = random.Random(1), {}
    for number in range(COUNT):
        words = chance.sample(FILLER, 3)
        if number % 5:
            words.insert(chance.randrange(4), chance.choice(("secret", "secrets", "electric car", "electric cars")))
        made[f"d{number}"] = f"{'apple ' if number % 3 else ''}{' '.join(words)} {number}"
    return made


def holds(text: str, question: str) -> bool:
    """Whether a text holds something that the question excludes, by plain words."""
    words = f" {' '.join(word.rstrip('s') for word in text.split())} "
    excluded = {"-secret": " secret ", '-"electric car"': " electric car ", "-lamp": " lamp "}
    return any(part in question and phrase in words for part, phrase in excluded.items())


TEXTS = texts()


DAMAGES = {
    "unreadable": f"UPDATE {POSTINGS} SET data = '\\x00'",  # noqa: S608 - constants
    "emptied": f"DELETE FROM {POSTINGS}",  # noqa: S608 - as above
    "whole": "SELECT",
}


@contextmanager
def damaged(url: str, damage: str) -> Iterator[None]:
    """The keyword index is damaged while the block runs: so that nobody can read it, or so that nobody notices."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TEMPORARY TABLE kept AS TABLE {POSTINGS}")
        connection.execute(DAMAGES[damage])
        yield
        connection.execute(f"DELETE FROM {POSTINGS}")  # noqa: S608 - a constant
        connection.execute(f"INSERT INTO {POSTINGS} TABLE kept")


async def late(searching: Coroutine[Any, Any, Any], url: str) -> Any:
    """The answer of a search whose statements on the keyword index are cancelled, as at a deadline."""
    cancelled: set[Any] = set()
    with held(url, POSTINGS) as connection:
        task = asyncio.ensure_future(searching)

        def over() -> bool:
            connection.execute("SELECT pg_stat_clear_snapshot()")
            waiting = connection.execute(
                "SELECT pid, query_start FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND datname = current_database()"
            ).fetchall()
            for statement in set(waiting) - cancelled:
                cancelled.add(statement)
                connection.execute("SELECT pg_cancel_backend(%s)", [statement[0]])
            return task.done()

        await eventually(over)
    return await task


async def answer(retriever: PostgreSQLRetriever, chance: random.Random, question: str, options: dict[str, Any]) -> Any:
    """The hits of one of the calls that search, with the number that was wanted."""
    retriever.info.keyword.index.cache.postings.clear()  # type: ignore[union-attr]
    wanted, kind = chance.choice((1, 5, 25)), chance.choice(("search", "many", "pages", "explained", "grouped"))
    if kind == "many":
        found = await retriever.search_many([question, "pear"], wanted, **options)
        return found[0], wanted
    if kind == "pages":
        page = await retriever.search(question, 4, max_results=10, **options)
        hits = list(page)
        while page.next_cursor is not None:
            page = await retriever.search_page(page.next_cursor)
            hits += page
        return hits, 10
    if kind == "grouped":
        return await retriever.search(question, wanted, group_by="document", group_size=2, **options), 1
    candidates = chance.choice((None, wanted))
    found = await retriever.search(
        question, wanted, tuning={"candidates": candidates}, explain=kind == "explained", deadline=600, **options
    )
    return found, wanted


async def test_no_hit_holds_what_is_excluded(database_url: str, full: bool) -> None:
    async with opened(database_url, collection="fruit") as retriever:
        await retriever.add_documents(
            [
                Document(text, {"n": n}, id=name, language="german" if n % 2 else None)
                for n, (name, text) in enumerate(TEXTS.items())
            ]
        )
        for seed in range(1000) if full else (*range(8), 179):
            chance = random.Random(seed)
            question, state = chance.choice(QUESTIONS), ("whole", "unreadable", "late", "emptied")[seed % 4]
            mode = chance.choice((None, "vector", "hybrid", *(["keyword"] if state == "whole" else [])))
            filters = chance.choice((None, {"n": {"$lt": 40}}))
            searching = answer(retriever, chance, question, {"mode": mode, "filters": filters})
            if state == "late":
                hits, wanted = await late(searching, database_url)
            else:
                with damaged(database_url, state):
                    hits, wanted = await searching
            told = f"seed {seed}: {question}, {mode}, {state}"
            assert not [hit.content for hit in hits if holds(hit.content, question)], told
            left = [
                n
                for n, text in enumerate(TEXTS.values())
                if not holds(text, question)
                and (filters is None or n < 40)
                and (mode != "keyword" or "apple" in text or ("tree" in question and "tree" in text))
            ]
            assert len(hits) >= min(wanted, len(left)), told


async def test_a_search_by_vectors_alone_says_why_a_document_is_left_out(database_url: str) -> None:
    async with opened(database_url, collection="fruit") as retriever:
        await retriever.add_documents([Document("a secret apple", id="a"), Document("an apple", id="b")])
        told = await retriever.why("a", "apple -secrets", mode="vector")
        assert (told.found, told.code) == (False, "excluded")
        assert 'it holds "secret"' in told.reasons[0].text
        assert (await retriever.why("b", "apple -secrets", mode="vector")).found


@pytest.mark.parametrize(("keyword", "expected"), [("none", {"b"}), ("tsvector", {"a", "b"})])
async def test_engines_that_know_exclusions(database_url: str, keyword: str, expected: set[str]) -> None:
    async with opened(database_url, keyword=keyword) as retriever:
        await retriever.add_documents([Document("a secret apple", id="a"), Document("an apple", id="b")])
        assert {hit.id for hit in await retriever.search("apple -secrets", mode="vector")} == expected


async def test_a_fallback_leaves_out_what_is_excluded(tmp_path: Path) -> None:
    (tmp_path / "kb.json").write_text('[{"id": 1, "text": "a secret apple"}, {"id": 2, "text": "an apple"}]')
    assert [hit.id for hit in await JSONKBRetriever(tmp_path).search("apple -secrets")] == ["2"]
