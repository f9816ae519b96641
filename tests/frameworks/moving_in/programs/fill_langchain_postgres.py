"""Run where langchain-postgres is: makes a table and a collection, and prints what they hold.

python fill_langchain_postgres.py ADDRESS ROWS.json
"""

import json
import sys
from datetime import datetime
from pathlib import Path

from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_postgres import Column, PGEngine, PGVector, PGVectorStore


def main():
    address, rows = f"postgresql+psycopg://{sys.argv[1]}", json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    ids, texts, metadata, vectors = (list(column) for column in zip(*rows, strict=True))
    size = len(vectors[0])
    engine = PGEngine.from_connection_string(address)
    columns = [Column("year", "INTEGER"), Column("at", "TIMESTAMP WITH TIME ZONE"), Column("kind", "TEXT")]
    engine.init_vectorstore_table("new_docs", size, metadata_columns=columns)
    new = PGVectorStore.create_sync(
        engine,
        table_name="new_docs",
        embedding_service=DeterministicFakeEmbedding(size=size),
        metadata_columns=[column.name for column in columns],
    )
    at = datetime.fromisoformat("2024-05-06T07:08:09.123456+00:00")
    with_columns = [one | {"year": number, "at": at, "kind": None} for number, one in enumerate(metadata)]
    new.add_embeddings(texts, vectors, [dict(one) for one in with_columns], ids=ids)
    old = PGVector(DeterministicFakeEmbedding(size=size), connection=address, collection_name="old docs")
    old.add_embeddings(texts, vectors, [dict(one) for one in metadata], ids=ids)
    found = {}
    for name, store in (("new_docs", new), ("old docs", old)):
        documents = store.similarity_search_by_vector(vectors[0], k=len(ids))
        found[name] = [(document.id, document.page_content, document.metadata) for document in documents]
    sys.stdout.write(json.dumps(found, default=datetime.isoformat))


if __name__ == "__main__":
    main()
