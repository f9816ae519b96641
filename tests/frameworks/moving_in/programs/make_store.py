"""Run where the stores are: makes one in this folder, and prints what it holds and what is nearest to a question.

python make_store.py NAME ROWS.json
"""

import json
import sys
from pathlib import Path

import numpy as np


def faiss_index(rows, vectors):
    import faiss

    index = faiss.IndexIDMap(faiss.IndexFlatIP(vectors.shape[1]))
    index.add_with_ids(vectors, np.array([int(row[0]) for row in rows]))
    faiss.write_index(index, "my.index")
    Path("texts.json").write_text(json.dumps({row[0]: row[1] for row in rows}), encoding="utf-8")
    return [str(number) for number in index.search(vectors[:1], 5)[1][0]]


def langchain_faiss(rows, vectors):
    from langchain_community.vectorstores import FAISS
    from langchain_core.embeddings import FakeEmbeddings

    pairs = [(row[1], row[3]) for row in rows]
    store = FAISS.from_embeddings(
        pairs, FakeEmbeddings(size=1), metadatas=[row[2] for row in rows], ids=[row[0] for row in rows]
    )
    store.save_local("faiss_store")
    return [str(document.id) for document in store.similarity_search_by_vector(rows[0][3], k=5)]


def chroma(rows, vectors):
    import chromadb

    collection = chromadb.PersistentClient("chroma_store").create_collection("docs")
    collection.add(
        ids=[row[0] for row in rows],
        documents=[row[1] for row in rows],
        metadatas=[row[2] or None for row in rows],  # it takes no empty ones
        embeddings=vectors,
    )
    return list(collection.query(query_embeddings=vectors[:1], n_results=5)["ids"][0])


def lancedb_table(rows, vectors):
    import lancedb
    import pyarrow as pa

    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    columns = {"id": [row[0] for row in rows], "text": [row[1] for row in rows], "vector": flat}
    columns["kind"] = [row[2].get("kind") for row in rows]
    table = lancedb.connect("lance_store").create_table("docs", pa.table(columns))
    return [row["id"] for row in table.search(vectors[0]).distance_type("cosine").limit(5).to_list()]


def qdrant(rows, vectors):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path="qdrant_store")
    client.create_collection("docs", models.VectorParams(size=vectors.shape[1], distance=models.Distance.DOT))
    client.upsert(
        "docs", [models.PointStruct(id=int(row[0]), vector=row[3], payload={"text": row[1]} | row[2]) for row in rows]
    )
    found = client.query_points("docs", query=rows[0][3], limit=5).points
    client.close()
    return [str(point.id) for point in found]


STORES = {"FAISS": faiss_index, "FAISS of LangChain": langchain_faiss}
STORES |= {"Chroma": chroma, "LanceDB": lancedb_table, "Qdrant": qdrant}


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(STORES[sys.argv[1]](given, np.array([row[3] for row in given], np.float32))))
