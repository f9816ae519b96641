"""Run where Haystack is: makes two tables, and prints what they hold.

python fill_haystack.py ADDRESS ROWS.json
"""

import json
import sys
from pathlib import Path

from haystack import Document
from haystack.dataclasses import ByteStream
from haystack.utils import Secret
from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore


def main():
    address, rows = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    found = {}
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
        found[f"documents_{kind}"] = [(one.id, one.content, one.meta) for one in store.filter_documents()]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
