"""Run where LlamaIndex is: makes two tables, and prints what they hold.

python fill_llama_index.py ADDRESS ROWS.json
"""

import json
import sys
from pathlib import Path

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import VectorStoreQuery
from llama_index.vector_stores.postgres import PGVectorStore

STORES = {
    "Nodes": {},
    "halves": {"use_halfvec": True, "use_jsonb": True, "hybrid_search": True, "text_search_config": "english"},
}


def main():
    address, rows = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    size = len(rows[0][3])
    found = {}
    for name, options in STORES.items():
        store = PGVectorStore(
            connection_string=f"postgresql+psycopg2://{address}",
            async_connection_string=f"postgresql+asyncpg://{address}",
            table_name=name,
            embed_dim=size,
            **options,
        )
        store.add([_node(*row, text="an earlier text") for row in rows[:2]])
        store.add([_node(*row) for row in rows])
        answer = store.query(VectorStoreQuery(query_embedding=rows[0][3], similarity_top_k=2 * len(rows)))
        found[name] = [(node.node_id, node.text, node.metadata) for node in answer.nodes or []]
    sys.stdout.write(json.dumps(found))


def _node(name, own, metadata, vector, text=None):
    of = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="the book")}
    return TextNode(id_=name, text=text or own, metadata=metadata, embedding=vector, relationships=of)


if __name__ == "__main__":
    main()
