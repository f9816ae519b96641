"""An open collection: the database, metadata, models and caches that indexing and searching use."""

from __future__ import annotations

import logging
import math
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from semlex.embedding.probe import EmbedderProbe
from semlex.errors import CollectionDroppedError, ModelError, ModelMismatchError, PrivilegeError, SemlexError
from semlex.models.tokenizer import FILE_COUNTER, TokenCounter, counter_of_words
from semlex.store.embedding_versions import dropped, ensure_embedding_version, note_use, read_versions
from semlex.store.indexes.catalog import RememberedIndexes
from semlex.store.postgres.database import SnapshotReads
from semlex.store.query.passing_rows import RememberedRows
from semlex.store.query.score_calibration import VectorSample
from semlex.store.query.selection import RememberedShares
from semlex.store.schema.locks import Presence, gone
from semlex.store.schema.registry import find_collection, open_collection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.clock import Clock
    from semlex.embedding.base import Embedder
    from semlex.embedding.query_cache import QueryEmbeddingCache
    from semlex.models.executor import ModelExecutor
    from semlex.reranking.base import Reranker
    from semlex.store.indexes.background import IndexBuilds
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.schema.collection import CollectionInfo, EmbeddingVersion, Versions
    from semlex.types.confidence import ConfidenceCurve

logger = logging.getLogger("semlex")

# Another process may make, switch or drop a version of the vectors. A version in use can be dropped if its use was not
# noted for a minute, so a process looks, and notes its use, more often than that.
LOOK_SECONDS = 20.0
NOTE_SECONDS = 20.0
# Noting a use is for others; no search waits longer for it.
NOTE_LIMIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class OpenModels:
    """The models of a collection.

    Attributes:
        embedder: The model that embeds, or None.
        embedding_choice: One line that says which embedder is used, and why.
        counter_name: The name of the embedder's token counter, or None.
        names_tokenizer: Whether the user has named a tokenizer; it must be the one with which the collection counts.
        version: The embedding version of the embedder's vectors, or None.
        of_length_1: Whether the embedder's vectors have length 1.
        missing: The error that says why the collection's own model cannot be used here, or None. With an error only
            keyword search works.
        owned: The embedder, if it was opened here and must be closed here.
    """

    embedder: Embedder | None = None
    embedding_choice: str = ""
    counter_name: str | None = None
    names_tokenizer: bool = False
    version: EmbeddingVersion | None = None
    of_length_1: bool = False
    missing: ModelError | None = None
    owned: tuple[Embedder, ...] = ()

    def refuse_without_model(self) -> None:
        """Raise the error that says why the collection's own model cannot be used, if it cannot."""
        if self.missing is not None:
            raise self.missing.with_traceback(None)

    def token_counter(self, collection: str, stored: str) -> TokenCounter:
        """Return the token counter of the collection's chunks."""
        words = counter_of_words(stored)
        if words is not None and not self.names_tokenizer:
            return words
        if self.embedder is not None and self.counter_name == stored:
            return self.embedder
        remedy = "choose the model that has this tokenizer" if words is None else "leave the tokenizer out"
        if stored.startswith(FILE_COUNTER):
            remedy += (
                "; for a model on a server, name the tokenizer.json whose SHA-256 begins with "
                f"{stored.removeprefix(FILE_COUNTER)} (--tokenizer PATH, tokenizer= in Python)"
            )
        here = "no model is loaded" if self.counter_name is None else f"this model counts with {self.counter_name}"
        raise ModelMismatchError(
            f"the tokens of collection {collection!r} are counted with {stored}, but {here}: {remedy}; or index into "
            "another collection"
        )

    def close(self) -> None:
        """Close the model, if it was opened here."""
        for model in self.owned:
            model.close()


@dataclass(frozen=True, slots=True)
class OpenReranker:
    """The reranker of a client.

    Attributes:
        reranker: The model that reranks, or None.
        choice: One line that says which reranker is used, and why.
        owned: Whether it was opened here and must be closed here.
    """

    reranker: Reranker | None
    choice: str
    owned: bool

    def close(self) -> None:
        """Close the reranker, if it was opened here."""
        if self.owned and self.reranker is not None:
            self.reranker.close()


@dataclass(slots=True)
class SeenVersions:
    """The embedding versions of a collection as they were last read.

    Attributes:
        at: When they were read.
        versions: The versions; None if they have not been read since the collection was opened.
        told: Warnings already given, so that each is given once.
        noted_at: When it was last stored that this process uses a version other than the serving one.
        is_noted: Whether this role may store such a use.
    """

    at: float
    versions: Versions | None = None
    told: set[tuple[str, int | str]] = field(default_factory=set)
    noted_at: float = -math.inf
    is_noted: bool = True


@dataclass(slots=True)
class OpenCollection:
    """A collection as it was opened.

    A process keeps using its own model's vectors until they are dropped, even if processes that open the collection
    later use another version. A process that neither has a model nor brings vectors uses the serving version.

    Attributes:
        database: An open database; its reads fail once the collection was dropped.
        info: The collection's metadata; replaced when it has changed.
        models: The embedding model and its identity, which is read once, since that can be slow.
        executor: Runs blocking calls of models.
        query_cache: Vectors of earlier queries.
        builds: Indexes that are being built in the background.
        clock: Decides when metadata is read again.
        curve: The calibration from a file; None to use the one stored with the vectors.
        may_be_undone: Whether the collection exists only if the caller's transaction is committed.
        presence: Whether the collection still exists.
        probe: Compares the model with the stored vectors before its first use.
        sample: A sample of stored vectors, for score fusion.
        filter_shares: Measured shares of the chunks that filters keep.
        indexes: The vector indexes.
        passing_rows: Rows that pass the last filters.
        seen: The embedding versions as last read.
        brings_vectors: Whether the caller passes its own vectors, which count as those of the version in use.
        has_sources: Whether a search has found a chunk of a document that was read from a file.
        vector_settings: Settings of the last vector search without a filter; the next one probably needs the same.
    """

    database: Database
    info: CollectionInfo
    models: OpenModels
    executor: ModelExecutor
    query_cache: QueryEmbeddingCache
    builds: IndexBuilds
    clock: Clock
    curve: ConfidenceCurve | None
    may_be_undone: bool
    presence: Presence = field(init=False)
    probe: EmbedderProbe = field(init=False)
    sample: VectorSample = field(init=False)
    filter_shares: RememberedShares = field(init=False)
    indexes: RememberedIndexes = field(init=False)
    passing_rows: RememberedRows = field(default_factory=RememberedRows, init=False)
    seen: SeenVersions = field(init=False)
    brings_vectors: bool = field(default=False, init=False)
    has_sources: bool = field(default=False, init=False)
    vector_settings: Mapping[str, str | int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.presence = Presence(self.info)
        self.database = self.database.watched_by(self.presence)
        self.probe = EmbedderProbe(self.models.embedder, self.executor)
        self.sample, self.filter_shares = VectorSample(self.clock), RememberedShares(self.clock)
        self.indexes, self.seen = RememberedIndexes(self.clock), SeenVersions(self.clock.monotonic())

    def within(self, snapshot: Snapshot) -> Self:
        """Return the collection with the same models and caches, whose reads are in this snapshot."""
        inside = copy(self)
        inside.database = SnapshotReads(snapshot)
        return inside

    @property
    def reader(self) -> Database:
        """The database for reads that need not see the newest writes."""
        return self.database.reader

    async def refresh(self) -> None:
        """Read the collection's metadata again, since another process may have changed it."""
        self._take(await open_collection(self.database, self.info.names, None, create=False))

    async def renew(self) -> bool:
        """Return whether the collection exists; look again only if the caller may have rolled back its creation."""
        if not self.may_be_undone:
            return True
        try:
            found = await find_collection(self.database, self.info.names)
        except CollectionDroppedError:
            return False
        if found is None or found.collection_id != self.info.collection_id:
            return False
        self._take(found)
        return True

    def _take(self, found: CollectionInfo) -> None:
        if found.collection_id != self.info.collection_id:
            self.presence.is_gone = True
            raise gone(self.info)
        self.seen.at, self.seen.versions = self.clock.monotonic(), found.versions
        used = self.info.embedding
        if used is not None and found.versions.of(used.identity_key) is None:
            used = None  # made in a transaction that was rolled back
        self.info = self._with(found.versions, replace(found, keyword=self.info.keyword, embedding=used))

    async def ensure_version(self, wanted: EmbeddingVersion, *, is_given: bool) -> None:
        """Make sure that the collection has this embedding version; `is_given`: the caller passes the vectors."""
        await self.look()
        if self.info.embedding is None and not is_given:
            wanted = replace(wanted, probe=await self.probe.make())
        # Whether the caller's transaction will be committed is not known yet.
        self.may_be_undone |= self.database.joins_transaction and self.info.embedding is None
        self.info = await ensure_embedding_version(self.database, self.info, wanted)
        self.seen.versions = self.info.versions

    # --- several sets of vectors --------------------------------------------------------------------------------------

    def forget_versions(self) -> None:
        """Make the next `look` read the embedding versions again, because one was made, switched or dropped here."""
        self.seen.at = -math.inf

    async def look(self) -> None:
        """Read the embedding versions again, in a separate transaction, if that was last done some time ago."""
        if self._is_late():
            await self.database.read_snapshot("look at the embedding versions", self.follow)

    async def follow(self, snapshot: Snapshot) -> CollectionInfo:
        """Return the collection's metadata with the embedding version to search, as the transaction sees it.

        Args:
            snapshot: The search's snapshot, in which the versions are read if that was last done some time ago.
        """
        if self._is_late():
            found = await read_versions(snapshot.connection, self.info)
            if found is None:
                raise gone(self.info)
            self.info = self._with(found, self.info)  # fails on a standby that lacks the vectors
            self.seen.at, self.seen.versions = self.clock.monotonic(), found
        return self._as_seen()

    def _as_seen(self) -> CollectionInfo:
        """Return the metadata with the most recently read embedding versions."""
        if self.seen.versions is not None:
            self.info = self._with(self.seen.versions, self.info)
        return self.info

    def _is_late(self) -> bool:
        return self.clock.monotonic() - self.seen.at >= LOOK_SECONDS

    def _with(self, versions: Versions, info: CollectionInfo) -> CollectionInfo:
        """Return the metadata with the embedding version that this process uses."""
        used = self._used_of(versions, info)
        if info.versions is versions and info.embedding is used:
            return info
        return replace(info, versions=versions, embedding=used)

    def _used_of(self, versions: Versions, info: CollectionInfo) -> EmbeddingVersion | None:
        used, model = info.embedding, self.models.version
        if used is None and model is not None:
            # Another process made the first vectors. If its model is another one, keyword search keeps answering.
            return versions.of(model.identity_key)
        if used is None or (model is None and not self.brings_vectors):
            return versions.answering
        own = versions.of(used.identity_key)
        if own is not None and own.probe != used.probe:
            # Other weights of the same name made those vectors: keep using the own ones while they exist.
            own = next((version for version in versions.standing if version.version == used.version), None)
        if own is None:
            raise dropped(replace(info, versions=versions))
        return own

    async def mismatch(self) -> ModelMismatchError | None:
        """Compare the open model with the vectors in use, once; return the error if it makes other vectors."""
        version, name = self.info.embedding, self.info.names.collection
        return None if version is None else await self.probe.mismatch(version.probe, version.model, name)

    def note(self, who: Literal["search", "write"]) -> list[str]:
        """Return warnings that were not given yet: another version serves now, or the model has changed slightly."""
        info, model = self._as_seen(), self.models.version
        serving, used = info.versions.answering, info.embedding
        notes = [one for one in self.probe.notes if (who, one) not in self.seen.told]
        self.seen.told.update((who, one) for one in notes)
        if serving is None or used == serving or (who, serving.version) in self.seen.told:
            return notes
        is_logged = any(version == serving.version for _, version in self.seen.told)
        self.seen.told.add((who, serving.version))
        name = info.names.collection
        if used is not None:
            goes_on = f"this process keeps using version {used.version} ({used.model}), with which it was opened"
        else:
            opened = "" if model is None else model.model
            goes_on = f"this process was opened with {opened} and uses keyword search only"
        note = (
            f"collection {name!r} has version {serving.version} of its vectors now ({serving.model}); {goes_on}: open "
            "the collection again with the new model"
        )
        if not is_logged:
            logger.warning("%s", note)
        return [*notes, note]

    def lacking_note(self) -> list[str]:
        """Return a warning if chunks lack a vector of the version in use; a program with another model wrote them."""
        used, name = self.info.embedding, self.info.names.collection
        if used is None or used.version not in self.presence.incomplete:
            return []
        note = (
            f"vector search misses some chunks of collection {name!r}: a program with another model wrote them; "
            f"a worker computes their vectors (semlex worker), or do it now: semlex models fill --collection {name}"
        )
        return [note]

    async def note_use(self) -> None:
        """Store that this process uses a version of vectors that does not serve, so that nobody drops that version.

        This takes a separate short transaction, and does nothing if that is not possible: on a standby, for a role that
        may only read, and inside a transaction of the caller's, which could hold the lock for any time.
        """
        info, seen = self._as_seen(), self.seen
        used = info.embedding
        if used is None or used.version == info.versions.serving or not seen.is_noted:
            return
        if info.server.read_only or self.database.joins_transaction:
            return
        if self.clock.monotonic() - seen.noted_at < NOTE_SECONDS:
            return
        seen.noted_at = self.clock.monotonic()

        async def work(connection: Connection) -> None:
            await note_use(connection, info.names, used.version)

        try:
            async with self.clock.timeout(NOTE_LIMIT_SECONDS):
                await self.database.write("note the use of an embedding version", work)
        except (SemlexError, TimeoutError) as error:
            seen.is_noted = not isinstance(error, PrivilegeError)
            logger.info("the use of version %d could not be recorded: %s", used.version, error or "it took too long")
