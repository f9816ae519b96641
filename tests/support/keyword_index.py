"""What is true of a keyword index at every moment."""

from functools import partial

from semlex.store.proving import check_keyword_index
from semlex.store.schema.names import Names
from semlex.types.documents import Document
from tests.support.databases import session
from tests.support.retrievers import filled, opened

bm25 = partial(opened, model="none", keyword="bm25", collection="words")
filled_bm25 = partial(filled, model="none", keyword="bm25", collection="words")


def many(count, text="a cat", start=0, languages=(None,)):
    """Documents with numbers in their texts and ids, of one language after another."""
    numbers = range(start, start + count)
    return [Document(f"{text} {n}", id=f"d{n}", language=languages[n % len(languages)]) for n in numbers]


def check_index(url, collection="words"):
    """Checks the index of a collection in one snapshot of a `session`; returns a few of its figures."""
    with session(url) as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        findings = check_keyword_index(connection, Names("semlex", collection))
    assert findings.is_well, str(findings)
    return findings.figures


def index_figures(url, *names):
    found = check_index(url)
    return tuple(found[name] for name in names)
