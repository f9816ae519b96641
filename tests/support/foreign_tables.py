"""Tables as langchain-postgres 0.0.19, LlamaIndex (postgres 0.9.0) and pgvector-haystack 8.1.2 make them.

`tests/frameworks` compares what those packages make with what is read of it; these are for everything else.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import set_json_loads

COLLECTION = "old docs"


@dataclass(frozen=True)
class Row:
    """A row to be put in: a vector as text, metadata as JSON values or text."""

    id: str | None
    text: str | None
    vector: str | None
    metadata: Any


def _json(value):
    return value if isinstance(value, str) or value is None else json.dumps(value)


def _node(row):
    """The metadata of a node of LlamaIndex, which holds the node."""
    if not isinstance(row.metadata, dict):
        return _json(row.metadata)
    node = json.dumps({"id_": row.id, "embedding": None, "metadata": row.metadata, "text": ""}, ensure_ascii=False)
    own = {"_node_content": node, "_node_type": "TextNode", "document_id": "d", "doc_id": "d", "ref_doc_id": "d"}
    return json.dumps(row.metadata | own)


@dataclass(frozen=True)
class Kind:
    layout: str  # its name in semlex
    name: str  # of what is imported
    table: str
    ddl: str  # what the package sends; `{type}` is vector or halfvec
    insert: str  # of one row
    values: Callable[[Row], Sequence[Any]]  # of `insert`
    columns: tuple[str, str, str, str]  # id, text, vector, metadata

    def make(self, connection, vector_type="vector(3)"):
        connection.execute(sql.SQL(self.ddl).format(type=sql.SQL(vector_type)))

    def fill(self, connection, rows):
        with connection.cursor() as cursor:
            cursor.executemany(self.insert, [self.values(row) for row in rows])

    def rows(self, connection):
        """Id -> text, metadata as Python reads it, bytes of the vector."""
        set_json_loads(json.loads, connection)
        name, text, vector, metadata = self.columns
        send = _send(connection, self.table, vector)
        rows = connection.execute(f"SELECT {name}::text, {text}, {metadata}, {send}({vector}) FROM {self.table}")
        return {name: (text, self.read(metadata), vector) for name, text, metadata, vector in rows}

    def read(self, metadata):
        return json.loads(metadata["_node_content"])["metadata"] if self.layout == "llama-index" else metadata or {}


def _send(connection, table, column):
    query = "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s"
    [kind] = connection.execute(query, [table, column]).fetchone() or [""]
    return "public.halfvec_send" if kind.endswith("halfvec") else "public.vector_send"


def stored_rows(url, collection):
    """What a collection holds: id -> text, metadata, bytes of the vector."""
    table = f"semlex.{collection}_embedding_1"
    with psycopg.connect(url) as connection:
        query = (
            f"SELECT chunk_id, chunk_text, metadata, {_send(connection, table, 'embedding')}(embedding) "
            f"FROM semlex.{collection}_chunk JOIN {table} USING (document_id, chunk_id)"
        )
        return {row[0]: row[1:] for row in connection.execute(query)}


def ids(retriever, word):
    return sorted(hit.id for hit in retriever.search(word, mode="keyword", top_k=100))


KINDS = {
    kind.layout: kind
    for kind in (
        Kind(
            *("langchain-postgres", "lc_docs", "lc_docs"),
            'CREATE TABLE "public"."lc_docs"("langchain_id" TEXT PRIMARY KEY, "content" TEXT NOT NULL, '
            '"embedding" {type} NOT NULL, "langchain_metadata" JSON)',
            "INSERT INTO lc_docs VALUES (%s, %s, %s, %s)",
            lambda row: (row.id, row.text, row.vector, _json(row.metadata)),
            ("langchain_id", "content", "embedding", "langchain_metadata"),
        ),
        Kind(
            *("langchain-pgvector", COLLECTION, "langchain_pg_embedding"),
            "CREATE TABLE langchain_pg_collection (uuid UUID NOT NULL, name VARCHAR NOT NULL, cmetadata JSON, "
            "PRIMARY KEY (uuid), UNIQUE (name));"
            "CREATE TABLE langchain_pg_embedding (id VARCHAR NOT NULL, collection_id UUID, embedding {type}, "
            "document VARCHAR, cmetadata JSONB, PRIMARY KEY (id), "
            "FOREIGN KEY(collection_id) REFERENCES langchain_pg_collection (uuid) ON DELETE CASCADE);"
            "CREATE INDEX ix_cmetadata_gin ON langchain_pg_embedding USING gin (cmetadata jsonb_path_ops);"
            "INSERT INTO langchain_pg_collection VALUES (gen_random_uuid(), 'old docs'), (gen_random_uuid(), 'other')",
            "INSERT INTO langchain_pg_embedding VALUES "
            "(%s, (SELECT uuid FROM langchain_pg_collection WHERE name = 'old docs'), %s, %s, %s)",
            lambda row: (row.id, row.vector, row.text, _json(row.metadata)),
            ("id", "document", "embedding", "cmetadata"),
        ),
        Kind(
            *("llama-index", "li_docs", "data_li_docs"),
            "CREATE TABLE public.data_li_docs (id BIGSERIAL NOT NULL, text VARCHAR NOT NULL, metadata_ JSON, "
            "node_id VARCHAR, embedding {type}, text_search_tsv TSVECTOR GENERATED ALWAYS AS "
            "(to_tsvector('english', text)) STORED, PRIMARY KEY (id));"
            "CREATE INDEX li_docs_idx_1 ON public.data_li_docs USING btree ((metadata_ ->> 'ref_doc_id'))",
            "INSERT INTO data_li_docs (node_id, text, embedding, metadata_) VALUES (%s, %s, %s, %s)",
            lambda row: (row.id, row.text, row.vector, _node(row)),
            ("node_id", "text", "embedding", "metadata_"),
        ),
        Kind(
            *("haystack", "haystack_docs", "haystack_docs"),
            "CREATE TABLE public.haystack_docs (id VARCHAR(128) PRIMARY KEY, embedding {type}, content TEXT, "
            "blob_data BYTEA, blob_meta JSONB, blob_mime_type VARCHAR(255), meta JSONB);"
            "CREATE INDEX haystack_words ON public.haystack_docs USING gin (to_tsvector('english', content))",
            "INSERT INTO haystack_docs (id, embedding, content, meta) VALUES (%s, %s, %s, %s)",
            lambda row: (row.id, row.vector, row.text, _json(row.metadata)),
            ("id", "content", "embedding", "meta"),
        ),
    )
}
