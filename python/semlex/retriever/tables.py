"""Operations with tables: load rows with vectors, follow tables, dump the collection, return hits as rows to join."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID, uuid4

from semlex.errors import ConfigurationError, SemlexError
from semlex.ingest.bulk.load import LoadReport, TableSource, VectorLoad, import_table, inspect_table
from semlex.ingest.bulk.row_batch import RowFields, checked_fields
from semlex.ingest.bulk.sources import arrow, stream_batches
from semlex.ingest.deletion import Deletion
from semlex.ingest.followed.run import stored_tables, sync_tables
from semlex.ingest.loaders.office import OfficeLoader
from semlex.ingest.loaders.registry import loaders
from semlex.maintenance.dump import TransferReport, arrow_array, as_it_is, dump
from semlex.options.declare import check_options, operation
from semlex.options.indexing import TableOptions
from semlex.progress import ProgressOption, shown
from semlex.retriever.handle import Part
from semlex.search.request import check_ids
from semlex.store.followed.connection import read_source
from semlex.store.followed.declaration import changed_table, declared_table, refuse_own, resolve
from semlex.store.followed.definitions import delete_table, insert_table, read_status, read_tables, replace_definition
from semlex.store.followed.triggers import TableTriggers, remove_triggers
from semlex.store.foreign_tables import LayoutName, WantedTable
from semlex.store.query.chunk_keys import keys_of
from semlex.store.query.filters import Filter
from semlex.store.query.hits import Included, Relation, fill_table, statement
from semlex.store.schema.locks import hold_collection
from semlex.store.tables import RowPart, copy_page
from semlex.store.write.sources import read_sources
from semlex.validation import (
    check_parameters,
    check_range,
    kind_errors,
    needed_path_errors,
    text_errors,
    text_parameter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray
    from pyarrow import RecordBatch

    from semlex.ingest.indexer import Indexer
    from semlex.ingest.progress import TableImport
    from semlex.open_collection import OpenCollection
    from semlex.store.followed.definitions import StoredTable
    from semlex.store.followed.source import SourceTable
    from semlex.store.postgres.connection import CallersConnection, Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import EmbeddingVersion
    from semlex.store.schema.names import Names
    from semlex.store.write.chunks import OnDuplicate
    from semlex.types.followed import FollowedStatus, FollowedTable, TableSync
    from semlex.types.results import SearchResult

    # Number of a row -> its vector.
    RowVectors = dict[int, NDArray[np.float32]]


DEFAULT_FIELDS = RowFields()
READ_ROWS, MAX_READ_ROWS = 5_000, 10_000
MAX_PARTS = 65_536
CHANGED_MEANWHILE = "{0!r} was changed or stopped by another program meanwhile: try again"


class Tables(Part):
    """Operations with tables: load or follow them, dump the collection, return hits as rows (`Collection.tables`)."""

    @operation("load vectors", "write")
    async def load(
        self,
        rows: Any,
        *,
        text_field: str = "text",
        vector_field: str = "vector",
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str = "metadata",
        on_duplicate: OnDuplicate = "update",
        skip_unchanged: bool = False,
        progress: ProgressOption = None,
    ) -> LoadReport:
        """Load rows that have vectors, at the speed of COPY; each row becomes a chunk. Nothing is split or embedded.

        float32 vectors are stored bit for bit; other numbers are rounded to float32. Rows are read, checked and written
        in transactions of `bulk.batch_size` rows (fewer if vectors are long), which bounds the memory. An error names
        the row; the batches before it stay stored, and you can load all rows again without duplicates. In your own
        transaction (`using`) all rows are stored or none.

        Args:
            rows: A table with an Arrow stream (pyarrow, polars, DuckDB, pandas); a mapping of names to columns (lists
                or NumPy arrays); an iterable of these; or the path of a Parquet or JSON Lines file, of a folder of
                them, or several paths. Arrow tables and Parquet need the extra ``arrow``.
            text_field: Field of the text.
            vector_field: Field of the vector: numbers, the same count in every row.
            id_field: Field of the id, text or whole numbers; by default ``id``, if that field exists. Rows without an
                id get one computed from text and metadata.
            metadata_fields: Fields that become metadata, each under its name; by default all others. Times become text
                (ISO 8601, to the microsecond, in UTC if they have a zone). A missing or null value gives no key.
            metadata_field: A field that holds objects, or their JSON text: their keys become metadata as they are.
            on_duplicate: For an id that is stored: ``update`` replaces the chunk, ``skip`` keeps it, ``fail`` fails the
                batch. If an id is repeated in a batch, the last row wins; with ``fail`` the batch fails.
            skip_unchanged: With ``update``, keep a chunk that has the same text and metadata and a vector of the model
                in use; the row's own vector is not compared.
            progress: Called after every batch; ``bar`` shows it.

        Raises:
            ConfigurationError: A field is missing or of another type, or a file cannot be read. Nothing was written,
                unless the message gives the number of stored rows.
            ValidationError: Rows of the batch are invalid; it lists every error of every row.
            DuplicateError: An id is stored or repeated, with ``fail``.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
            MissingExtraError: pyarrow is needed and not installed.
        """
        bars = shown(progress)
        fields = RowFields(text_field, vector_field, id_field, metadata_fields, metadata_field)
        with bars as tell:
            load = VectorLoad(self._handle.indexer, fields, on_duplicate, tell, skip_unchanged=skip_unchanged)
            return await load.run(rows)

    async def stored_vectors(self, rows: Any, fields: RowFields = DEFAULT_FIELDS) -> RowVectors:
        """Return the stored vectors of rows whose id and text are already stored, so that you need not compute them.

        Args:
            rows: A table with an Arrow stream, whose vectors are not read; needs the extra ``arrow``. If an id is
                repeated, only the last row of a batch is looked at. Titles in the metadata are part of the text.
            fields: Names of the fields, as for `load`.

        Returns:
            Row number from 0 -> vector of the model in use, float32 of shape (d,).

        Raises:
            ConfigurationError: A field is missing or of another type.
            ValidationError: Rows of a batch are invalid; it lists every error of every row.
        """
        check_parameters(kind_errors("fields", fields, RowFields))
        if not hasattr(rows, "__arrow_c_stream__"):
            raise ConfigurationError(f"rows must be a table with an Arrow stream; got {type(rows).__name__}")
        found: RowVectors = {}
        indexer, fields = await self._handle.indexer(), replace(checked_fields(fields), has_vectors=False)
        batches = stream_batches(rows, fields, indexer.bulk.batch_size)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            stored = await indexer.stored_vectors(await asyncio.to_thread(batch.given, fields, indexer.vector_storage))
            found |= {batch.first + number: vector for number, vector in stored.items()}
        return found

    async def read(
        self, *, part: int = 0, parts: int = 1, after: str | None = None, limit: int = READ_ROWS
    ) -> RecordBatch:
        """Return chunks with their vectors as an Arrow batch, in the order of their keys; needs the extra ``arrow``.

        Call it again with the last id until a batch is empty. Each call sees the collection as it is then.

        Args:
            part: Number of the part that is read, from 0. Parts are equal ranges of keys, so that several programs can
                read a collection together.
            parts: Number of parts, 1 to 65,536.
            after: Id of the last chunk of the batch before; None for the first one.
            limit: Maximum number of chunks, 1 to 10,000.

        Returns:
            Columns ``id``, ``text``, ``metadata`` (JSON text), ``source_document`` and, if the collection has vectors,
            ``vector``: float32, null if a chunk has none.

        Raises:
            ConfigurationError: A number is out of range.
            ValidationError: `after` is refused.
        """
        check_range("parts", parts, 1, MAX_PARTS)
        check_range("part", part, 0, parts - 1)
        check_range("limit", limit, 1, MAX_READ_ROWS)
        begin = None if after is None else keys_of(check_ids([after]))[0]
        pyarrow, whole = arrow(), 2**128
        documents = UUID(int=whole * part // parts), UUID(int=whole * (part + 1) // parts - 1)

        async def look(opened: OpenCollection, connection: Connection) -> tuple[EmbeddingVersion | None, list[RowPart]]:
            collection = await as_it_is(connection, opened.info)
            return collection.embedding, await copy_page(connection, collection, documents, begin, limit)

        async def read(opened: OpenCollection) -> RecordBatch:
            embedding, found = await opened.database.read_whole("read chunks", partial(look, opened))
            kinds: dict[str, Any] = dict.fromkeys(("id", "text", "metadata", "source_document"), pyarrow.string())
            if embedding is not None:
                kinds["vector"] = pyarrow.list_(pyarrow.float32(), embedding.dimensions)
            schema = pyarrow.schema(kinds)

            def decoded() -> RecordBatch:
                made = [
                    pyarrow.record_batch(list(map(arrow_array, schema.types, rows.buffers())), schema=schema)
                    for rows in found
                ]
                return pyarrow.Table.from_batches(made, schema).combine_chunks().to_batches()

            batches = await asyncio.to_thread(decoded)
            return batches[0] if batches else pyarrow.RecordBatch.from_pylist([], schema)

        return await self._handle.reading(read)

    @operation("follow table", "admin", TableOptions)
    async def follow(self, table: str, *, name: str | None = None, **options: Unpack[TableOptions]) -> FollowedTable:
        """Follow a table or view: its rows become documents, which `sync` or a worker keeps up to date.

        This call reads no rows. Repeating it changes nothing; use `change` to change the definition.

        Args:
            table: A table, partitioned table, view or materialized view: as ``name`` or ``schema.name``.
            name: Name of the table in the collection; None: as `table`. A row's ``source_document`` is ``NAME/KEY``.
            **options: See `TableOptions`; `text` is needed.

        Raises:
            ConfigurationError: The table or a column does not exist, the key is not unique, a type cannot be used, an
                expression is refused, or the table is already followed with other options.
            PrivilegeError: The role may not read the table or create its triggers (see `ddl`).
            StoreError: The triggers could not be created because another transaction held the table for a minute.
            ConnectionFailedError: `source_database` cannot be reached.
        """
        _check_table_options(options, "follow")
        # Before a collection is made for it.
        wanted = declared_table(table, name, options)
        source = await _resolved(await self._handle.database(), self._handle.names, wanted)
        return await _follow(await self._handle.indexer(), source)

    @operation("followed tables", "read")
    async def followed(self) -> list[FollowedStatus]:
        """Return the followed tables, sorted by name, each with its counts and when it was last read."""
        return await self._handle.read("list the followed tables", read_status)

    @operation("change table", "admin", TableOptions)
    async def change(self, name: str, *, table: str | None = None, **options: Unpack[TableOptions]) -> FollowedTable:
        """Change which columns of a followed table are read, or how its changes are noticed.

        Options you leave out stay as they are. The next sync compares all rows; only chunks whose text differs are
        embedded again. Call it without options if a column of the table has got another type.

        Args:
            name: Name of the followed table in the collection.
            table: The table's new name, if it was renamed.
            **options: As for `follow`.

        Raises:
            ConfigurationError: No table of that name is followed; otherwise as for `follow`.
            PrivilegeError: As for `follow`.
        """
        check_parameters(text_errors("name", name, blank=False), text_parameter("table", table))
        _check_table_options(options, "change")
        given = options if table is None else {**options, "table": table}
        return await _change(await self._handle.indexer(), name, given)

    @operation("trigger SQL", "admin", TableOptions)
    async def ddl(self, table: str, *, name: str | None = None, **options: Unpack[TableOptions]) -> str:
        """Return the SQL that creates the triggers of a table, without running it.

        `follow` and `change` with ``changes="trigger"`` create the triggers if the role may. If it may not, let another
        role run this SQL first: existing triggers are kept.

        Args:
            table: Without options, the name of a followed table in the collection; with options, a table as for
                `follow`.
            name: As for `follow`.
            **options: The same options that you give to `follow`.

        Returns:
            A script for psql, in one transaction. It may be run again.

        Raises:
            ConfigurationError: As for `follow`; or no table of that name is followed.
        """
        _check_table_options(options, "ddl")
        database, names = await self._handle.database(), self._handle.names
        by_trigger: TableOptions = {"changes": "trigger", "updated_at": None}
        if name is None and not options:
            wanted = changed_table((await _find_followed(database, names, table)).table, by_trigger)
        else:
            wanted = declared_table(table, name, {**options, **by_trigger})
        source = await _resolved(database, names, wanted)
        return await database.read("look at the table", TableTriggers(names, source).ddl)

    @operation("stop table", "admin")
    async def stop(self, name: str, *, keep: bool = False) -> int:
        """Stop following a table; its definition, its triggers and the documents of its rows are deleted.

        Args:
            name: Name of the followed table in the collection.
            keep: Whether the documents stay; if the table is followed again under this name, they belong to it again.

        Returns:
            How many documents were deleted.

        Raises:
            ConfigurationError: No table of that name is followed.
        """
        check_parameters(text_errors("name", name, blank=False), kind_errors("keep", keep, bool))
        indexer = await self._handle.indexer()
        if keep or not await _is_stopped(indexer, name):
            stored = await _find_followed(indexer.database, self._handle.names, name)
            if not await indexer.database.write(
                "stop following the table", lambda c: delete_table(c, indexer.collection, stored)
            ):
                raise ConfigurationError(CHANGED_MEANWHILE.format(name))
            await remove_triggers(indexer.database, self._handle.names, name)
        if keep or not await _is_stopped(indexer, name):
            return 0
        rows = Deletion(None, None, name, Filter(), vanished=False)
        return (await indexer.delete(rows, dry_run=False)).documents

    @operation("import table", "admin")
    async def import_table(
        self,
        table: str,
        *,
        layout: LayoutName | None = None,
        source_url: str | None = None,
        source_schema: str = "public",
        text_field: str | None = None,
        vector_field: str | None = None,
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str | None = None,
        on_duplicate: OnDuplicate = "update",
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> TableImport:
        """Load the rows of a table that another library filled; each becomes a chunk. Nothing is split or embedded.

        The table is read in one snapshot, and nothing in it is changed. Vectors are stored bit for bit, texts, ids and
        metadata as that library gives them. Rows are written in transactions, as by `load`; loading the table
        again updates what it holds. A row that cannot be stored is skipped, and the report names it.

        Args:
            table: A table of langchain-postgres, LlamaIndex (with or without the prefix ``data_``) or Haystack; or a
                collection of LangChain's older `PGVector`.
            layout: ``langchain-postgres``, ``langchain-pgvector``, ``llama-index`` or ``haystack``; ``pgvector`` for
                any other table. None: recognised by its columns.
            source_url: libpq connection string of the table's database; None: the collection's.
            source_schema: Schema of the table.
            text_field: Column of the text; None: the layout's own.
            vector_field: Column of the vectors; None: the layout's own.
            id_field: Column of the ids; None: the layout's own.
            metadata_fields: Other columns that become metadata, each under its name; None: all that the layout has. A
                null gives no key.
            metadata_field: Column of JSON objects whose keys become metadata; None: the layout's own.
            on_duplicate: For an id that is stored: ``update`` replaces the chunk, ``skip`` keeps it, ``fail`` fails the
                batch.
            dry_run: Whether to read all rows and report which would be skipped, without writing; the collection need
                not exist.
            progress: As for `load`.

        Raises:
            ConfigurationError: The table does not exist, its name fits several tables, or an argument cannot be used.
            ConnectionFailedError: The source cannot be reached, or its connection is lost; the batches before that stay
                stored.
            PrivilegeError: The role may not read the table.
            DuplicateError: An id is stored, with ``fail``.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
        """
        check_parameters(kind_errors("dry_run", dry_run, bool))
        bars = shown(progress)
        columns = {"text": text_field, "vector": vector_field, "id": id_field, "metadata": metadata_field}
        wanted = WantedTable(table, source_schema, layout, columns, metadata_fields)
        source = TableSource(wanted, source_url).checked()
        with bars as tell:
            load = VectorLoad(self._handle.indexer, RowFields(), on_duplicate, tell)
            database = await self._handle.database()
            return await (inspect_table(database, source, tell) if dry_run else import_table(database, load, source))

    @operation("sync tables", "write")
    async def sync(
        self,
        table: str | None = None,
        *,
        compare: bool = False,
        allow_empty: bool = False,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> list[TableSync]:
        """Update the collection from followed tables: store rows added or changed there, delete those that are gone.

        Only rows that differ are read. A chunk whose text is the same keeps its vector, and a row of which only
        metadata changed is neither embedded nor analysed. A row that changes meanwhile is read again. A row that cannot
        be stored keeps its last stored text and is tried again later; other rows do not wait for it.

        Args:
            table: Name of a followed table; None: all.
            compare: Whether to compare all rows, even if a column or triggers show which rows have changed.
            allow_empty: Whether to delete all documents of the table if none of its stored rows exists any more.
            dry_run: Whether to compare and count only.
            progress: Called repeatedly with the progress; ``bar`` shows a progress bar.

        Returns:
            One report for each table, by name.

        Raises:
            ConfigurationError: No such table is followed; a table or column no longer exists as it was followed; or
                none of the stored rows exists any more. Nothing of that table is deleted then. All other tables are
                synced before the error is raised.
            ConnectionFailedError: The table's database cannot be reached.
            PrivilegeError: The role cannot read the table.
        """
        check_parameters(
            text_parameter("table", table),
            kind_errors("compare", compare, bool),
            kind_errors("allow_empty", allow_empty, bool),
            kind_errors("dry_run", dry_run, bool),
        )
        with shown(progress) as tell:
            indexer = await self._handle.indexer()
            return await sync_tables(
                indexer,
                await stored_tables(indexer.database, self._handle.names, table),
                self._handle.wanted,
                compare=compare,
                allow_empty=allow_empty,
                dry_run=dry_run,
                progress=tell,
            )

    @operation("dump", "admin")
    async def dump(self, folder: str | PathLike[str], progress: ProgressOption = None) -> TransferReport:
        """Write the collection into a new folder: chunks with vectors, documents, sources, ingestion log, as Parquet.

        The dump is one snapshot, streamed while others search and write. The manifest is written last; a folder without
        it is not a dump. `Client.restore` reads the dump on any server; pandas and DuckDB read its files. Needs the
        extra ``arrow``.

        Args:
            folder: A folder that does not exist, is empty, or holds the remains of a dump that was killed.
            progress: Called repeatedly with the progress; ``bar`` shows a progress bar.

        Raises:
            ConfigurationError: The folder is not empty, another dump writes into it, or it cannot be created.
            MissingExtraError: pyarrow is not installed.
        """
        check_parameters(needed_path_errors("folder", folder))
        with shown(progress) as tell:
            return await self._handle.reading(lambda opened: dump(opened.database, opened.info, Path(folder), tell))

    async def hits_as_sql(self, results: Sequence[SearchResult], *, include: Sequence[Included] = ()) -> str:
        """Return a SELECT that gives the hits as rows, for psql, ``WITH hits AS (…)`` or a FROM clause.

        The columns are those of `hits_into`. Every value is quoted by the driver for this collection's server. The
        statement contains the hits themselves and does not read the collection. Without hits it returns no rows, but
        columns of the same types. It ends without a semicolon.

        Args:
            results: Results of a search, or some of the hits.
            include: Further columns: ``excerpt``, ``content``, ``metadata`` (as jsonb).

        Raises:
            ConfigurationError: `results` are not hits, or `include` names something else.
            ValidationError: A hit that you made yourself holds a value that Postgres cannot store.
        """
        relation = Relation(results, include)
        database = await self._handle.database()

        async def quoted(connection: Connection) -> str:
            return statement(connection, relation)

        return await database.read("quote hits", quoted)

    async def hits_into(
        self,
        connection: CallersConnection,
        results: Sequence[SearchResult],
        table: str,
        *,
        include: Sequence[Included] = (),
    ) -> int:
        """Put hits into a temporary table of your transaction, to join them with your tables.

        The table ends with the transaction. Its columns: ``rank``, ``document_rank`` (of a search that is grouped by
        document), ``id``, ``document_id`` (with ``id`` the key of the collection's chunks), ``source``,
        ``source_document``, ``line``, ``page``, ``vector_rank``, ``keyword_rank``, and every score under its name;
        values that a hit does not have are NULL. It works on any server, behind PgBouncer in transaction mode as well,
        and changes no setting of the session.

        Args:
            connection: As for `using`, in a transaction or without autocommit (a transaction is begun then); you close
                it.
            results: Results of a search, or some of the hits.
            table: Name of the table, which must be free; it is quoted.
            include: Further columns: ``excerpt``, ``content``, ``metadata`` (as jsonb).

        Returns:
            Number of hits in the table.

        Raises:
            ConfigurationError: The connection is in autocommit and in no transaction, or its transaction has failed; a
                table of that name exists, or the name is invalid; `results` are not hits.
            ReadOnlyError: The transaction is read-only, or the server a standby.
        """
        return await fill_table(connection, Relation(results, include), table)


def _check_table_options(options: Mapping[str, Any], call: str) -> None:
    """Check the options of a followed table: names, kinds of values, formats."""
    check_options(TableOptions, options, call)
    known = {loader.name for loader in loaders().values() if not isinstance(loader, OfficeLoader)}  # of texts
    formats = options.get("formats")
    for item, named in formats.items() if isinstance(formats, dict) else ():
        if named not in known:
            near = get_close_matches(str(named), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known formats: {', '.join(sorted(known))}"
            raise ConfigurationError(f"formats gives {item!r} the unknown format {named!r}; {hint}")


async def _follow(indexer: Indexer, source: SourceTable) -> FollowedTable:
    """Store the definition of a table to follow, and create its triggers if changes are noticed by triggers."""
    names, table, source_id = indexer.collection.names, source.definition, uuid4()

    async def store(connection: Connection) -> bool:
        await hold_collection(connection, indexer.collection, alone=True)
        found = await read_tables(connection, names, table.name)
        if not found:
            await insert_table(connection, names, source_id, table, source.types)
        elif found[0].table != table:
            before, now = asdict(found[0].table), asdict(table)
            other = ", ".join(f"{name}={before[name]!r}" for name in now if now[name] != before[name])
            raise ConfigurationError(
                f"{table.name!r} is followed already, with {other}: change it with tables.change({table.name!r}, …), "
                f"or semlex follow {table.name} --change …; or give this one another name (name=, --name)"
            )
        return not found or found[0].source_id == source_id  # stored by an attempt whose answer was lost

    is_new = await indexer.database.write("follow the table", store)
    if table.changes == "trigger":
        stored = await _find_followed(indexer.database, names, table.name)
        try:
            await TableTriggers(names, source).keep(indexer.database, stored)
        except SemlexError:
            if is_new:
                await indexer.database.write("forget the table", lambda c: delete_table(c, indexer.collection, stored))
            raise
    return table


async def _change(indexer: Indexer, name: str, options: Mapping[str, Any]) -> FollowedTable:
    """Replace the stored definition of a followed table, and create or remove its triggers as that requires."""
    database, names = indexer.database, indexer.collection.names
    stored = await _find_followed(database, names, name)
    source = await _resolved(database, names, changed_table(stored.table, options))

    async def replace(doing: str, before: StoredTable, table: FollowedTable, types: Mapping[str, str]) -> bool:
        return await database.write(doing, lambda c: replace_definition(c, indexer.collection, before, table, types))

    if (stored.table, stored.types) == (source.definition, source.types):
        return source.definition
    if not await replace("change the followed table", stored, source.definition, source.types):
        raise ConfigurationError(CHANGED_MEANWHILE.format(name))
    if source.definition.changes == "trigger":
        now = await _find_followed(database, names, name)
        try:
            await TableTriggers(names, source).keep(database, now)
        except SemlexError:
            await replace("restore the definition", now, stored.table, stored.types)
            raise
    elif stored.table.changes == "trigger":
        await remove_triggers(database, names, name)
    return source.definition


async def _is_stopped(indexer: Indexer, name: str) -> bool:
    """Return whether the table of this name was stopped, but documents of its rows are still stored."""
    found = await indexer.database.read("read the sources", lambda c: read_sources(c, indexer.collection, tables=True))
    return any((source.name, source.kind) == (name, "stopped") for source in found)


async def _find_followed(database: Database, names: Names, name: str) -> StoredTable:
    """Return the followed table of a name; an unknown name is an error."""
    [found] = await stored_tables(database, names, name)
    return found


async def _resolved(database: Database, names: Names, wanted: FollowedTable) -> SourceTable:
    """Read a table's definition from its server; raise if the table cannot be followed."""
    if wanted.source_database is None:
        await database.read("look at the table", lambda c: refuse_own(c, names, wanted))
    return await read_source(database, wanted, "look at the table", lambda c: resolve(c, wanted))
