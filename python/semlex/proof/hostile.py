"""Hostile values in every parameter: stored as they are, or refused by an error of semlex with nothing written."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, TypeVar

from semlex.errors import SemlexError
from semlex.json_values import json_tree
from semlex.proof import hostile_values as hostile
from semlex.proof.check import Fault, check_stored, expect
from semlex.proof.scenarios import Scenario, Tries
from semlex.store.proving import Connection, connected, count_rows
from semlex.testing import HashEmbedder
from semlex.types.documents import Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.retriever.synchronous import SyncCollection
    from semlex.store.schema.names import Names

T = TypeVar("T")
CALLS = 20  # of a round
MAX_MESSAGE = 1_500
MAX_TEXTS = 300  # in a collection, before another one is begun


class Doors:
    """The calls of a collection that take hostile values; each returns whether it refused them."""

    def __init__(self, collection: SyncCollection, url: str, connection: Connection, names: Names) -> None:
        self._collection, self._url, self._connection, self._names = collection, url, connection, names
        self.calls = (self.add, self.add, self.ask, self.look_up)
        self.texts: dict[str, str] = {}  # of everything that was stored

    def begin(self) -> None:
        """Store a first document."""
        [one] = self._collection.add_documents([first := hostile.good_document(random.Random(0))])
        self.texts[one] = first.content

    def rows(self) -> tuple[int, ...]:
        """Return how many rows each table has."""
        return count_rows(self._connection, self._names)

    def add(self, draw: random.Random) -> bool:
        """Add documents, some of them hostile: either all are stored, or none."""
        documents = [hostile.good_document(draw) for _ in range(draw.randrange(3))]
        documents.insert(draw.randint(0, len(documents)), hostile.document(draw))
        embeddings = hostile.vectors(draw, len(documents))
        before = self.rows()
        ids = _result_of(lambda: self._collection.add_documents(documents, embeddings))
        if ids is None:
            expect(self.rows() == before, "wrong", "a call was refused and has written something")
            return True
        found = {document.id: document for document in self._collection.get(ids)}
        expect(set(found) == set(ids), "lost", "a call has stored fewer documents than it reported")
        last = dict(zip(ids, documents, strict=True))
        for chunk_id, given in last.items():
            stored = found[chunk_id]
            content = given.content if isinstance(given, Document) else given["content"]  # of a mapping
            self.texts[chunk_id] = content
            expect(stored.content == content, "wrong", "a text was read differently from how it was stored")
            if not isinstance(given, Document):
                continue
            # A document that takes the place of another keeps the time at which that was made.
            is_new = self.rows()[0] >= before[0] + len(last)
            parent = None if given.parent_id is None else str(given.parent_id)  # ids may be whole numbers
            is_right = (
                _same(json_tree(given.metadata), dict(stored.metadata))
                and stored.updated_at == given.updated_at
                and (stored.created_at == given.created_at or not is_new)
                and (stored.parent_id, stored.child_ids) == (parent, [str(child) for child in given.child_ids])
            )
            expect(is_right, "wrong", "a document was read differently from how it was stored")
        return False

    def ask(self, draw: random.Random) -> bool:
        """Search with hostile words, a filter or a vector, which must change nothing."""
        before = self.rows()
        options: dict[str, Any] = {}
        if draw.random() < 0.3:
            options["filters"] = hostile.filters(draw)
        if draw.random() < 0.2:
            made = hostile.vectors(draw, 1)
            options["vector"] = None if made is None or len(made) == 0 else made[0]
        text, count = hostile.text(draw), draw.choice((1, 5, 1000))
        hits = _result_of(lambda: self._collection.search(text, count, **options))
        _result_of(lambda: self._collection.count(options.get("filters")))
        expect(self.rows() == before, "wrong", "a search has changed something")
        json.dumps([hit.metadata for hit in hits or ()])
        return hits is None

    def look_up(self, draw: random.Random) -> bool:
        """Look up hostile ids that do not exist: nothing is found, or they are refused."""
        before = self.rows()
        ids: list[Any] = [f"not there {hostile.text(draw)}" for _ in range(draw.randrange(3))]
        if draw.random() < 0.3:
            ids.append(draw.choice(hostile.STRANGERS))
        found = _result_of(lambda: self._collection.get(ids))
        expect(self.rows() == before, "wrong", "looking up has changed something")
        is_known = all(one.id in self.texts for one in found or ())  # a whole number may have been stored as an id
        expect(is_known, "wrong", "something was found under an id that was never stored")
        return found is None

    def check(self) -> None:
        """Check that exactly the expected documents are stored, and that both searches find them."""
        check_stored(self._url, self._names, [self.texts], HashEmbedder(hostile.DIMENSIONS), own_vectors=True)
        count = self._collection.count()
        expect(count == len(self.texts), "lost", f"{len(self.texts)} chunks are stored, and {count} are counted")
        expect(self._collection.search("harmless text", 5).mode == "hybrid", "wrong", "hybrid search does not work")


def _result_of(call: Callable[[], T]) -> T | None:
    """Return the result of a call; None if it was refused, in a message of bounded length."""
    try:
        return call()
    except SemlexError as error:
        length = len(str(error))
    expect(0 < length < MAX_MESSAGE, "wrong", f"an error's message has {length} characters")
    return None


def _same(given: Any, found: Any) -> bool:
    """Return whether JSON was read as it was written, including the types of its numbers."""
    if isinstance(given, dict):
        return (
            isinstance(found, dict)
            and sorted(given) == sorted(found)
            and all(_same(given[name], found[name]) for name in given)
        )
    if isinstance(given, (list, tuple)):
        return isinstance(found, list) and len(given) == len(found) and all(map(_same, given, found))
    return type(given) is type(found) and given == found


class HostileValues(Scenario):
    """Call a collection with hostile values in rounds, and check after each round what is stored."""

    name = "hostile"
    what = (
        "values that break stores, as texts, ids, metadata, times, vectors, queries and filters: stored as they are, "
        "or refused with nothing written"
    )

    def begin(self) -> None:
        model = HashEmbedder(hostile.DIMENSIONS)
        client = self.site.client(self.site.application(self.name), embedding_model=model)
        self._client = self.opened.enter_context(client)

    def attempt(self) -> Tries:
        if len(self.texts) > MAX_TEXTS:
            self._client.drop(self.names.collection)
            self.texts = {}
        with connected(self.site.url) as connection:
            collection = self._client.collection(self.names.collection)  # another one after a drop
            doors = Doors(collection, self.site.url, connection, self.names)
            if not self.texts:
                doors.begin()
            doors.texts = self.texts = doors.texts | self.texts
            for _ in range(CALLS):
                door = self.chance.choice(doors.calls)
                try:
                    self.notes["refused"] += door(self.chance)
                except Fault as fault:
                    raise Fault(fault.kind, f"{door.__name__}: {fault.what}") from None
            self.site.sabotage(self.names)
            doors.check()
        return Tries(CALLS)
