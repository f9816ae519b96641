"""What is true of a keyword index at every moment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import psycopg

from semlex.store.proving import check_keyword_index
from semlex.store.schema.names import Names
from semlex.types.documents import Document
from tests.support.retrievers import opened

bm25 = partial(opened, model="none", keyword="bm25", collection="words")


def many(count: int, text: str = "a cat", start: int = 0, languages: Sequence[str | None] = (None,)) -> list[Document]:
    """Documents with numbers in their texts and ids, of one language after another."""
    numbers = range(start, start + count)
    return [Document(f"{text} {n}", id=f"d{n}", language=languages[n % len(languages)]) for n in numbers]


def check_index(url: str, collection: str = "words") -> dict[str, int]:
    """Checks the index of a collection in one snapshot; returns a few of its figures."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        findings = check_keyword_index(connection, Names("semlex", collection))
    assert findings.is_well, str(findings)
    return findings.figures
