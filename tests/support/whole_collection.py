"""What is true of a collection of files at every moment, and what it has in common with a new index of them."""

from collections import Counter

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from semlex.store import proving
from semlex.store.schema.names import Names

# What differs between two collections of the same files: when and in which order they were written.
DIFFERENT = {"created_at", "updated_at", "modified_at", "file_state", "keyword_id", "previous_id"}
QUESTIONS = {"key shutter zenith": "hybrid", "a vault": "vector", "ship banana": "keyword"}


def count_faults(connection, collection):
    return proving.count_faults(connection, Names("semlex", collection))


def is_made(connection, collection):
    return proving.is_made(connection, Names("semlex", collection))


def rows_of(connection, collection):
    """The rows of a collection as a new index of the same files has them, too."""
    cursor = connection.cursor(row_factory=dict_row)
    found, keys = {}, ("source_id", "document_id", "chunk_id")
    for table in ("source", "document", "chunk", "embedding_1"):
        name = sql.Identifier("semlex", f"{collection}_{table}")
        rows = cursor.execute(sql.SQL("SELECT * FROM {}").format(name)).fetchall()
        kept = [{column: value for column, value in row.items() if column not in DIFFERENT} for row in rows]
        found[table] = sorted(kept, key=lambda row: [str(row.get(key)) for key in keys])
    return found


def indexes_of(connection, collection):
    query = """SELECT substr(relname, length(%(prefix)s) + 1), indisvalid AND indisready
        FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid
        WHERE relnamespace = to_regnamespace('semlex') AND starts_with(relname, %(prefix)s)"""
    return dict(connection.execute(query, {"prefix": f"{collection}_"}).fetchall())


def answers(store):
    """What the questions find; the vector index is asked for all that there is."""
    return [
        sorted(
            (round(hit.fused_score or 0, 5), round(hit.vector_score or 0, 5), round(hit.keyword_score or 0, 4), hit.id)
            for hit in store.search(question, 200, mode=mode, tuning={"ef_search": 1_000})
        )
        for question, mode in QUESTIONS.items()
    ]


def check_searches(url, collection, store, folder, chance):
    """Searches work: a word of one section is found where that is stored, and nowhere else."""
    with psycopg.connect(url) as connection:
        stored = Counter(document["content_hash"] for document in rows_of(connection, collection)["document"])
    for word, text in chance.sample(sorted(folder.words.items()), 6):
        hits = store.search(word, 10, mode="keyword")
        assert len(hits) == stored[text]
        assert all(word in hit.content for hit in hits)
    hits, count = store.search("key shutter zenith", 10), store.count()
    assert hits.warnings == ([] if count else ["the collection is empty"])  # a kill may leave only its tables
    assert len(hits) == min(10, count)
