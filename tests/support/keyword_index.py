"""What is true of a keyword index at every moment."""

from __future__ import annotations

import psycopg

from semlex.store.proving import check_keyword_index
from semlex.store.schema.names import Names


def check_index(url: str, collection: str = "words") -> dict[str, int]:
    """Checks the index of a collection in one snapshot; returns a few of its figures."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        findings = check_keyword_index(connection, Names("semlex", collection))
    assert findings.is_well, str(findings)
    return findings.figures
