"""Tables that the libraries themselves make and fill: what they give back is what semlex holds after an import."""

import json
import uuid

import numpy as np
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from semlex import SyncRetriever
from tests.frameworks.moving_in.interpreters import PROGRAMS, bytes_of, output_of
from tests.support.foreign_tables import stored_rows

ROWS, DIMENSIONS = 40, 24
METADATA = [
    {},
    {"source": "a/b.md", "page": 3, "score": 0.1, "draft": False, "none": None},
    {"tags": ["a", "é", "日本語"], "nested": {"deep": [1, {"k": 1.5}]}},
    {"large": 2**53 + 1, "tiny": 5e-324, "quote": "'\"\\", "": "an empty key"},
]
TABLES = {
    "langchain_postgres": {"new_docs": "new_docs", "old docs": "langchain_pg_embedding"},
    "llama_index": {"Nodes": "data_nodes", "halves": "data_halves"},
    "haystack": {"documents_vector": "documents_vector", "documents_halfvec": "documents_halfvec"},
}


def rows(seed):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(ROWS, DIMENSIONS)).astype(np.float32).tolist()
    ids = (str(uuid.UUID(bytes=random.bytes(16))) for _ in vectors)
    texts = (f"Row {n} is about apples, {'Äpfel' * (n % 3)} and 🍏\n\n\ttabs" for n in range(ROWS))
    return list(zip(ids, texts, METADATA * (ROWS // len(METADATA)), vectors, strict=True))


@pytest.mark.parametrize("library", TABLES)
def test_what_a_library_has_filled_is_kept(database_url, tmp_path, library):
    given = rows(len(library))
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(given), encoding="utf-8")
    server = conninfo_to_dict(database_url)
    address = f"{server['user']}@/{server['dbname']}?host={server['host']}&port={server['port']}"
    said = json.loads(output_of(library, PROGRAMS / "fill_tables.py", library, address, file))
    assert said.keys() == TABLES[library].keys()
    for name, documents in said.items():
        with SyncRetriever(database_url, "none", None, use_reranking=False, collection="moved") as moved:
            report = moved.tables.import_table(name)
            for number in (0, 7):
                question = np.array(given[number][3], np.float32)
                assert moved.search(vector=question, mode="vector", top_k=3)[0].id == given[number][0]
            stored = stored_rows(database_url, "moved")
            moved.drop_collection()
        assert (report.written, report.taken) == (ROWS, ROWS)
        assert report.problems == [] or [problem.id for problem in report.problems] == ["picture", "picture"]
        told = {one: (text, metadata) for one, text, metadata in documents if text not in (None, "an earlier text")}
        if library == "langchain_postgres" and name == "new_docs":  # a null of a column, not of JSON, is no key
            for _, metadata in told.values():
                assert metadata.pop("kind", 0) is None
        else:
            assert {one: row[:2] for one, row in stored.items()} == {row[0]: (row[1], row[2]) for row in given}
        assert len(told) >= ROWS - 2
        assert told == {one: row[:2] for one, row in stored.items() if one in told}
        assert {row[0]: row[1] for row in given} == {one: row[0] for one, row in stored.items()}
        with psycopg.connect(database_url) as connection:
            vectors = f"SELECT vector_send(embedding::vector) FROM {TABLES[library][name]} WHERE embedding IS NOT NULL"
            kept = sorted(row[2] for row in stored.values())
            assert set(kept) <= {vector for (vector,) in connection.execute(vectors)}
        kind = np.float32 if report.vector_type == "vector" else np.float16
        assert kept == sorted(bytes_of(row[3], kind) for row in given)
