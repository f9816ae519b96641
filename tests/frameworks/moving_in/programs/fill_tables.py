"""Run where a library is: makes tables with its stores, and prints what they hold.

python fill_tables.py LIBRARY ADDRESS ROWS.json
"""

import json
import sys
from datetime import datetime
from pathlib import Path


def haystack(address, rows):
    from haystack import Document
    from haystack.dataclasses import ByteStream
    from haystack.utils import Secret
    from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore

    for kind in ("vector", "halfvec"):
        store = PgvectorDocumentStore(
            connection_string=Secret.from_token(f"postgresql://{address}"),
            table_name=f"documents_{kind}",
            keyword_index_name=f"words_{kind}",
            embedding_dimension=len(rows[0][3]),
            vector_type=kind,
        )
        documents = [Document(id=row[0], content=row[1], meta=row[2], embedding=row[3]) for row in rows]
        store.write_documents([*documents, Document(id="picture", blob=ByteStream(b"\0", mime_type="image/png"))])
        yield f"documents_{kind}", [(one.id, one.content, one.meta) for one in store.filter_documents()]


def langchain_postgres(address, rows):
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_postgres import Column, PGEngine, PGVector, PGVectorStore

    address = f"postgresql+psycopg://{address}"
    ids, texts, metadata, vectors = (list(column) for column in zip(*rows, strict=True))
    embedding = DeterministicFakeEmbedding(size=len(vectors[0]))
    engine = PGEngine.from_connection_string(address)
    columns = [Column("year", "INTEGER"), Column("at", "TIMESTAMP WITH TIME ZONE"), Column("kind", "TEXT")]
    engine.init_vectorstore_table("new_docs", len(vectors[0]), metadata_columns=columns)
    names = [column.name for column in columns]
    new = PGVectorStore.create_sync(engine, table_name="new_docs", embedding_service=embedding, metadata_columns=names)
    at = datetime.fromisoformat("2024-05-06T07:08:09.123456+00:00")
    with_columns = [one | {"year": number, "at": at, "kind": None} for number, one in enumerate(metadata)]
    new.add_embeddings(texts, vectors, [dict(one) for one in with_columns], ids=ids)
    old = PGVector(embedding, connection=address, collection_name="old docs")
    old.add_embeddings(texts, vectors, [dict(one) for one in metadata], ids=ids)
    for name, store in (("new_docs", new), ("old docs", old)):
        documents = store.similarity_search_by_vector(vectors[0], k=len(ids))
        yield name, [(document.id, document.page_content, document.metadata) for document in documents]


def llama_index(address, rows):
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores import VectorStoreQuery
    from llama_index.vector_stores.postgres import PGVectorStore

    def node(name, own, metadata, vector, text=None):
        of = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="the book")}
        return TextNode(id_=name, text=text or own, metadata=metadata, embedding=vector, relationships=of)

    halves = {"use_halfvec": True, "use_jsonb": True, "hybrid_search": True, "text_search_config": "english"}
    for name, options in (("Nodes", {}), ("halves", halves)):
        store = PGVectorStore(
            connection_string=f"postgresql+psycopg2://{address}",
            async_connection_string=f"postgresql+asyncpg://{address}",
            table_name=name,
            embed_dim=len(rows[0][3]),
            **options,
        )
        store.add([node(*row, text="an earlier text") for row in rows[:2]])
        store.add([node(*row) for row in rows])
        answer = store.query(VectorStoreQuery(query_embedding=rows[0][3], similarity_top_k=2 * len(rows)))
        yield name, [(one.node_id, one.text, one.metadata) for one in answer.nodes or []]


if __name__ == "__main__":
    library, address, file = sys.argv[1:]
    found = globals()[library](address, json.loads(Path(file).read_text(encoding="utf-8")))
    sys.stdout.write(json.dumps(dict(found), default=datetime.isoformat))
