"""Ray Data: rows embedded by many workers and written into a collection, and a collection as a dataset.

Any task may be run again, because a worker died or the whole program did. A row is stored under its id, so a row that
is written twice is stored once. With `skip_stored`, texts that an earlier run has stored are not embedded again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache, partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import ray.data
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import Datasink, Datasource, ReadTask

from semlex.embedding.base import BaseEmbedder, Embedder, EmbedderIdentity
from semlex.embedding.registry import choose_embedder
from semlex.errors import CollectionDroppedError, CollectionNotFoundError, ConfigurationError
from semlex.ingest.bulk.row_batch import RowFields, checked_fields
from semlex.ingest.bulk.sources import stream_batches
from semlex.ingest.chunk_rows import document_texts
from semlex.ingest.embed import usable_vectors
from semlex.options.collection import CollectionOptions
from semlex.retriever.synchronous import SyncClient, SyncCollection
from semlex.retriever.tables import MAX_READ_ROWS
from semlex.store.write.copy import BulkIngestConfig
from semlex.validation import check_parameters, check_range, kind_errors, model_errors, text_errors, text_parameter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.ingest.bulk.load import LoadReport
    from semlex.store.write.chunks import OnDuplicate

T = TypeVar("T")

# Column that says which model has made the vectors; a table without it has vectors from elsewhere.
MODEL = "embedding_model"
# A worker writes one batch while it sends the next.
CONNECTIONS = 2
# An index would be kept up to date row by row. It is built once, after the last row.
WITHOUT_INDEXES = BulkIngestConfig(build_indexes=False)
ANY_OPTIONS = CollectionOptions()


@dataclass(frozen=True)
class NamedModel(BaseEmbedder):
    """The identity of the model that made the written vectors; it cannot embed."""

    _identity: EmbedderIdentity
    counter_name: str

    @property
    def identity(self) -> EmbedderIdentity:
        """Return the model's identity."""
        return self._identity

    def to_json(self) -> str:
        """Return the identity as text for the column `MODEL`."""
        return json.dumps({**asdict(self._identity), "counter_name": self.counter_name}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the identity from the text in the column `MODEL`."""
        try:
            values = json.loads(text)
            counter_name = values.pop("counter_name")
            return cls(EmbedderIdentity(**values), counter_name)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigurationError(
                f"the column name {MODEL!r} is reserved for SemlexEmbed: rename yours, or name it in metadata_fields"
            ) from None

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:  # noqa: ARG002
        """Refuse: rows are embedded by `SemlexEmbed`."""
        raise ConfigurationError(f"{self._identity.model} makes no vectors here: embed rows with SemlexEmbed first")


@dataclass(frozen=True)
class Address:
    """The address of a collection, as it is sent to workers.

    Attributes:
        url: libpq connection string; None: ``DATABASE_URL`` of the process that opens it.
        collection: Name of the collection.
        schema: Schema of its tables.
        options: Options of a new collection.
    """

    url: str | None
    collection: str
    schema: str
    options: CollectionOptions

    def checked(self) -> Address:
        """Check the arguments; return this address, with ``DATABASE_URL`` of this process if it has no url."""
        check_parameters(
            text_parameter("url", self.url),
            text_errors("collection", self.collection, blank=False),
            kind_errors("options", self.options, CollectionOptions),
        )
        return replace(self, url=self.url or os.environ.get("DATABASE_URL"))

    def open(self, model: str | NamedModel, *, create: bool = True) -> SyncCollection:
        """Return the collection, opened by this process's client for the database and a model."""
        url = self.url or os.environ.get("DATABASE_URL")
        if not url:
            raise ConfigurationError("name a database that every worker reaches: url=, or DATABASE_URL on each worker")
        with _making:
            client = _client(url, self.schema, model)
        return client.collection(self.collection, self.options, create=create, bulk=WITHOUT_INDEXES)

    def __repr__(self) -> str:
        return f"Address(collection={self.collection!r}, schema={self.schema!r})"  # an address may hold a password


# Threads of a process share what is made under it.
_making = threading.Lock()


@cache
def _client(url: str, schema: str, model: str | NamedModel) -> SyncClient:
    """Return the only client of this process for a database and a model; it lives as long as the process."""
    return SyncClient(url, model, use_reranking=False, schema=schema, max_connections=CONNECTIONS)


@lru_cache(maxsize=4)
def _model(name: str, device: str | None, dimensions: int | None) -> Embedder:
    """Return the model with this name, loaded once per process and shared by all of its tasks."""
    chosen = choose_embedder(name, device=device, dimensions=dimensions).model
    if chosen is None:
        raise ConfigurationError(f"{name!r} is not a model that embeds: name one, such as 'static'")
    return chosen


def _again_if_dropped(call: Callable[[], T]) -> T:
    """Repeat a call if the open collection was dropped; the second call opens the one that now has this name."""
    try:
        return call()
    except CollectionDroppedError:
        return call()


class SemlexSink(Datasink[int]):
    """Writes rows with vectors into a collection: ``dataset.write_datasink(SemlexSink(url, "articles"))``.

    Rows are written in transactions of 5,000, each worker process with up to two connections. Rows of `SemlexEmbed`
    that are stored with the same text and metadata are not written again; other rows replace what is stored. When all
    rows are stored, the driver builds the vector index.

    Args:
        url: libpq connection string that every worker reaches. None: ``DATABASE_URL`` of the driver; if it has none,
            of each worker.
        collection: Lower-case letters, digits and underscores, at most 48.
        schema: Schema of its tables.
        options: Options of a new collection; an existing one must have them.
        embedding_model: Name of the model that made the vectors, if they do not come from `SemlexEmbed`, which names
            its own. None: semlex has no model for the vectors, so searches need words or your own vectors.
        text_field: As for `Collection.tables.load`, as are the next four.
        vector_field: Column of the vectors.
        id_field: Column of the ids; without ids, they are computed from text and metadata.
        metadata_fields: Columns that become metadata; by default all others.
        metadata_field: Column of objects, or of their JSON text, whose keys become metadata.
        on_duplicate: ``update`` replaces a stored row of the same id, ``skip`` keeps it.
        build_indexes: Whether the driver merges the keyword index and builds the vector index at the end.

    Raises:
        ConfigurationError: An argument is refused.
    """

    def __init__(
        self,
        url: str | None,
        collection: str,
        *,
        schema: str = "semlex",
        options: CollectionOptions = ANY_OPTIONS,
        embedding_model: str | None = None,
        text_field: str = "text",
        vector_field: str = "vector",
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str = "metadata",
        on_duplicate: OnDuplicate = "update",
        build_indexes: bool = True,
    ) -> None:
        check_parameters(
            text_parameter("embedding_model", embedding_model), kind_errors("build_indexes", build_indexes, bool)
        )
        if on_duplicate not in ("update", "skip"):  # with "fail", a task that is run again fails on its own rows
            raise ConfigurationError(
                f"on_duplicate must be 'update' or 'skip', because a task may be run again; got {on_duplicate!r:.80}"
            )
        self.address = Address(url, collection, schema, options).checked()
        fields = RowFields(text_field, vector_field, id_field, metadata_fields, metadata_field)
        self.fields = checked_fields(fields)
        self._embedding_model = embedding_model
        self._on_duplicate: OnDuplicate = on_duplicate
        self._build_indexes = build_indexes

    def get_name(self) -> str:
        """Return the name of the write tasks."""
        return "Semlex"

    def on_write_start(self, schema: Any = None) -> None:  # noqa: ARG002
        """Open the collection from the driver, so that a wrong address or option fails before any work."""
        with suppress(CollectionNotFoundError):
            self.address.open("none", create=False).open()

    def write(self, blocks: Iterable[Any], ctx: Any) -> int:  # noqa: ARG002
        """Write blocks of one task; return how many rows were stored.

        Raises:
            ConfigurationError: A column is missing or of another type.
            ValidationError: With every error of every row of a batch; the batches before it are stored.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
        """
        return sum(
            _again_if_dropped(partial(self._load, BlockAccessor.for_block(block).to_arrow())) for block in blocks
        )

    def _load(self, table: pa.Table) -> int:
        fields = self.fields
        if not table.num_rows:
            return 0
        named: str | NamedModel = self._embedding_model or "none"
        if MODEL in table.column_names and MODEL not in (fields.metadata or ()):
            (text, *others) = table[MODEL].unique().to_pylist()
            if others:
                raise ConfigurationError(
                    "the rows have vectors of several models: write the rows of each model with a separate sink"
                )
            named, table = NamedModel.from_json(text), table.drop_columns([MODEL])
        report: LoadReport = self.address.open(named).tables.load(
            table,
            text_field=fields.text,
            vector_field=fields.vector,
            id_field=fields.id,
            metadata_fields=fields.metadata,
            metadata_field=fields.merged,
            on_duplicate=self._on_duplicate,
            # A vector of a named model follows from the text: such a row need not be written again.
            skip_unchanged=isinstance(named, NamedModel),
        )
        return report.written

    def on_write_complete(self, write_result: Any) -> None:  # noqa: ARG002
        """Merge the keyword index and build the vector index from the driver, if the collection is large enough."""
        if not self._build_indexes:
            return
        indexes = self.address.open("none", create=False).indexes
        with suppress(CollectionNotFoundError):  # a dataset without rows makes none
            indexes.optimize()
            indexes.create(concurrently=True)


class SemlexEmbed:
    """Embeds the texts of batches: ``dataset.map_batches(SemlexEmbed("static"))``.

    It adds the columns of the vectors and of the model's identity. As in `Collection.add_documents`, titles in the
    metadata are embedded with the text. Each worker process loads the model once. For a GPU give Ray the class:
    ``map_batches(SemlexEmbed, fn_constructor_args=["Qwen/Qwen3-Embedding-0.6B"], num_gpus=1, batch_size=1024)``.

    Args:
        model: A model's name or folder, as for `connect`; or an `Embedder` that can be pickled.
        skip_stored: Sink of the dataset. If its collection has the same text under the same id, with a vector of this
            model, the row gets that vector instead of being embedded again.
        text_field: Column of the text. This and the next four are by default those of `skip_stored`, else as for
            `SemlexSink`.
        vector_field: Column of the vectors; one that exists is replaced.
        id_field: Column of the ids.
        metadata_fields: Columns that become metadata.
        metadata_field: Column of objects whose keys become metadata.
        device: Where the model runs: ``cuda``, ``mps``, ``cpu``.
        dimensions: Length to which vectors are cut, for models that allow it.

    Raises:
        ConfigurationError: An argument is refused.
    """

    def __init__(
        self,
        model: str | Embedder,
        *,
        skip_stored: SemlexSink | None = None,
        text_field: str | None = None,
        vector_field: str | None = None,
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str | None = None,
        device: str | None = None,
        dimensions: int | None = None,
    ) -> None:
        check_parameters(
            model_errors("model", model, "identity", "embed_documents", "embed_query"),
            text_errors("model", model, blank=False) if model is None or isinstance(model, str) else [],
            kind_errors("skip_stored", skip_stored, SemlexSink, NoneType),
        )
        given: dict[str, Any] = {
            "text": text_field,
            "vector": vector_field,
            "id": id_field,
            "metadata": metadata_fields,
            "merged": metadata_field,
        }
        fields = RowFields() if skip_stored is None else skip_stored.fields
        named = {name: one for name, one in given.items() if one is not None}
        self._fields = checked_fields(replace(fields, **named))
        self._model, self._device, self._dimensions = model, device, dimensions
        self._sink = skip_stored

    def __call__(self, batch: Any) -> pa.Table:
        """Return the rows of a batch, in any format of Ray, with their vectors.

        Raises:
            ConfigurationError: A column is missing or of another type.
            ValidationError: With every error of every row of the batch.
            ModelError: The model cannot be loaded, or its vectors cannot be stored.
        """
        embedder, fields = self._embedder(), self._fields
        table = _arrow(batch)
        table = table.drop_columns([name for name in (fields.vector, MODEL) if name in table.column_names])
        model, plain = NamedModel(embedder.identity, embedder.counter_name), replace(fields, has_vectors=False)
        stored, with_context = self._stored(table, model)
        texts = [
            text
            for rows in stream_batches(table, plain, max(table.num_rows, 1))
            for text in document_texts(rows.given(plain, "vector"), with_context=with_context)
        ]
        size = embedder.dimensions
        vectors = np.empty((len(texts), size), np.float32)
        wanted = [number for number in range(len(texts)) if number not in stored]
        if wanted:
            made = embedder.embed_documents([texts[number] for number in wanted])
            vectors[wanted] = usable_vectors(made, len(wanted), size, embedder.identity.model, "vector")
        for number, vector in stored.items():
            vectors[number] = vector
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), size)
        places = pa.array(np.zeros(len(texts), np.int32))
        named = pa.DictionaryArray.from_arrays(places, pa.array([model.to_json()]))
        return table.append_column(fields.vector, column).append_column(MODEL, named)

    def _embedder(self) -> Embedder:
        if not isinstance(self._model, str):
            return self._model
        with _making:
            return _model(self._model, self._device, self._dimensions)

    def _stored(self, table: pa.Table, model: NamedModel) -> tuple[dict[int, NDArray[np.float32]], bool]:
        """Return row number -> stored vector, and whether titles are embedded with the text."""
        # Rows are never left out here: if a task is run again, Ray takes what it yields for what it yielded before.
        if self._sink is None:
            return {}, True
        address = self._sink.address
        collection = address.open(model, create=False)
        try:
            stored = _again_if_dropped(lambda: collection.tables.stored_vectors(table, self._fields))
        except CollectionNotFoundError:
            return {}, address.options.with_context is not False
        return stored, collection.info.settings.with_context


def _arrow(batch: Any) -> pa.Table:
    """Return a batch of any of Ray's formats as a table."""
    if isinstance(batch, Mapping):
        batch = BlockAccessor.batch_to_block(dict(batch))
    return BlockAccessor.for_block(batch).to_arrow()


class SemlexSource(Datasource):
    """A collection as a source of Ray Data; `read_semlex` reads it."""

    def __init__(self, address: Address, rows: int) -> None:
        super().__init__()
        self._address, self._rows = address.checked(), rows

    def get_name(self) -> str:
        """Return the name of the read tasks."""
        return "Semlex"

    def estimate_inmemory_data_size(self) -> int | None:
        """Return None: counting a large collection takes long."""
        return None

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,  # noqa: ARG002
    ) -> list[ReadTask]:
        """Return a task for each range of keys."""
        address, rows = self._address, self._rows
        address.open("none", create=False).open()  # a wrong name fails in the driver
        unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)

        reads = [partial(_read, address, part, parallelism, rows) for part in range(parallelism)]
        return [ReadTask(read, unknown, per_task_row_limit=per_task_row_limit) for read in reads]


def _read(address: Address, part: int, parts: int, rows: int) -> Iterator[pa.Table]:
    tables, after = address.open("none", create=False).tables, None
    while (batch := tables.read(part=part, parts=parts, after=after, limit=rows)).num_rows:
        after = batch["id"][-1].as_py()
        yield pa.Table.from_batches([batch])
    if after is None:
        yield pa.Table.from_batches([batch])  # Ray takes the columns from it


def read_semlex(
    url: str | None,
    collection: str,
    *,
    schema: str = "semlex",
    rows: int = 5_000,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> ray.data.Dataset:
    """Return a collection as a dataset, read by many workers.

    Each task reads one range of keys, page by page; a page has what the collection holds when the page is read.

    Args:
        url: As for `SemlexSink`.
        collection: Name of the collection.
        schema: Schema of its tables.
        rows: Rows of a page, 1 to 10,000.
        concurrency: Maximum number of concurrent tasks, as for `ray.data.read_datasource`.
        override_num_blocks: Number of tasks, up to 65,536.
        ray_remote_args: Arguments of the tasks.

    Returns:
        A dataset with the columns ``id``, ``text``, ``metadata`` (JSON text), ``source_document`` and ``vector``.

    Raises:
        ConfigurationError: An argument is refused.
        CollectionNotFoundError: The collection does not exist.
    """
    check_range("rows", rows, 1, MAX_READ_ROWS)
    source = SemlexSource(Address(url, collection, schema, ANY_OPTIONS), rows)
    return ray.data.read_datasource(
        source, concurrency=concurrency, override_num_blocks=override_num_blocks, ray_remote_args=ray_remote_args
    )
