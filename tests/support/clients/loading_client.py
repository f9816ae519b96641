"""A program for tests: loads documents with given ids in batches, and says which batches are acknowledged.

It says ``open``, and then a number for each batch that the server has confirmed.
"""

from semlex.proof.children import say, stop_at
from semlex.types.documents import Document
from tests.support.retrievers import sync_opened


def documents_of(batch, rows):
    numbers = range(batch * rows, (batch + 1) * rows)
    return [Document(f"text number {number}", {"number": number}, id=f"d{number}") for number in numbers]


def main(url, batches, rows, moment):
    stop_at(*moment)
    with sync_opened(url) as retriever:
        say("open")
        for batch in range(batches):
            retriever.add_documents(documents_of(batch, rows))
            say(batch)
