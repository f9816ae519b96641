"""Make the tables of the first version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names

# A segment of the keyword index numbers its chunks with 16 bits, and a block of ids is as large as the largest segment:
# the ids of one are a single range, however many writers there are. 2**63 ids are enough for 1.4e14 blocks.
ID_BLOCK = 65_536


def registry(schema: str) -> Sequence[sql.Composed]:
    """Return the statements that make the tables that all collections of a schema share."""
    return (
        sql.SQL("""
            CREATE TABLE {} (
                version int PRIMARY KEY,
                fingerprint text NOT NULL,
                applied_at timestamptz NOT NULL
            )""").format(sql.Identifier(schema, "registry_version")),
        _collections(sql.Identifier(schema, "collection")),
        _embedding_versions(sql.Identifier(schema, "embedding_version")),
        *_jobs(sql.Identifier(schema, "job")),
        _followed_tables(sql.Identifier(schema, "followed_table")),
        *_row_changes(sql.Identifier(schema, "row_change")),
    )


def _collections(table: sql.Identifier) -> sql.Composed:
    """Return SQL for the table of collections."""
    # `chunk_tokens`, `overlap_tokens` and `min_tokens` are NULL until the first file is split. `description` is what
    # its owner wrote about the collection, if anything. `cursor_key` signs the cursors of pages: 32 random bytes in
    # hexadecimal digits.
    return sql.SQL("""
        CREATE TABLE {} (
            name text COLLATE "C" PRIMARY KEY,
            collection_id uuid NOT NULL,
            cursor_key text NOT NULL,
            schema_version int NOT NULL,
            schema_fingerprint text NOT NULL,
            distance text NOT NULL,
            language text NOT NULL,
            stop_words bool NOT NULL,
            partitions int NOT NULL,
            token_counter text NOT NULL,
            with_context bool NOT NULL,
            chunk_tokens int,
            overlap_tokens int,
            min_tokens int,
            embedding_version int NOT NULL,
            last_embedding_version int NOT NULL DEFAULT 0,
            keyword_engine text NOT NULL,
            keyword_generation int NOT NULL DEFAULT 1,
            analyzer_version int,
            building_generation int,
            building_analyzer_version int,
            description text,
            created_at timestamptz NOT NULL,
            updated_at timestamptz NOT NULL
        )""").format(table)


def _embedding_versions(table: sql.Identifier) -> sql.Composed:
    """Return SQL for the table of embedding versions."""
    # `token_counter` counts the tokens of chunks while the version answers; NULL: the collection's. `run_number` and
    # `run_until` are of the run that fills it. `served_until` is NULL for a version that answers or never did, and
    # `last_used_at` is of searches by processes that hold its model while another version answers. `calibration` maps
    # similarities to probabilities. `probe` is the model's vector of a fixed text, float32 in base64; NULL: vectors
    # from elsewhere. `lacking_writes` counts writes whose rows lack a vector of the version, because the writer held
    # another model.
    return sql.SQL("""
        CREATE TABLE {} (
            name text COLLATE "C" NOT NULL,
            version int NOT NULL,
            identity_key text NOT NULL,
            model text NOT NULL,
            revision text,
            dimensions int NOT NULL,
            storage text NOT NULL,
            token_counter text,
            calibration jsonb,
            probe text,
            lacking_writes bigint NOT NULL DEFAULT 0,
            building bool NOT NULL,
            run_number bigint NOT NULL DEFAULT 0,
            run_until timestamptz,
            served_until timestamptz,
            last_used_at timestamptz,
            created_at timestamptz NOT NULL,
            PRIMARY KEY (name, version)
        )""").format(table)


def _jobs(table: sql.Identifier) -> Sequence[sql.Composed]:
    """Return SQL for the table of jobs, one for all collections."""
    # `fence` grows whenever another worker takes a job. It is part of the key so that changing it is a change of the
    # key: it waits for, and is seen by, holders of the row's lock FOR KEY SHARE, which all other changes of a row
    # ignore.
    #
    # `due_at` is when a job may be taken: a queued one from then on, a running one because its lease is over. `lease`
    # is how long that one is at most.
    #
    # `submission_no` is the order in which jobs were submitted, whatever a clock says. `document_ids` are of the
    # documents that a job brings: among jobs that share one, the order is kept.
    return (
        sql.SQL("""
            CREATE TABLE {} (
                job_id uuid NOT NULL,
                fence int NOT NULL,
                submission_no bigint GENERATED BY DEFAULT AS IDENTITY,
                kind text NOT NULL,
                collection text NOT NULL,
                arguments jsonb NOT NULL,
                document_ids jsonb GENERATED ALWAYS AS (
                    jsonb_path_query_array(arguments, '$.documents[*].id')
                ) STORED,
                state text NOT NULL,
                priority int NOT NULL,
                unique_key text,
                cancel_wanted bool NOT NULL,
                attempts int NOT NULL,
                max_attempts int NOT NULL,
                due_at timestamptz NOT NULL,
                lease interval,
                stage text,
                done bigint,
                total bigint,
                unit text,
                error_code text,
                error_message text,
                result jsonb,
                submitted_at timestamptz NOT NULL,
                started_at timestamptz,
                finished_at timestamptz,
                PRIMARY KEY (job_id, fence)
            )""").format(table),
        # What a worker takes next, in this order; jobs that have ended are not in it.
        sql.SQL(
            "CREATE INDEX job_due ON {} (priority DESC, due_at, job_id) WHERE state IN ('queued', 'running')"
        ).format(table),
        # Whom a job waits for that brings documents.
        sql.SQL(
            "CREATE INDEX job_order ON {} (collection, submission_no) "
            "WHERE kind = 'add' AND state IN ('queued', 'running')"
        ).format(table),
        sql.SQL(
            "CREATE INDEX job_unique_key ON {} (collection, unique_key) "
            "WHERE state = 'queued' AND unique_key IS NOT NULL"
        ).format(table),
    )


def _followed_tables(table: sql.Identifier) -> sql.Composed:
    """Return SQL for the table of followed tables: tables of users that collections read."""
    # `definition` is what is read and how changes are noticed (`types.followed.FollowedTable`). `watermark` is how
    # texts were split, and the greatest value of the column that grows or the state of triggers. `look_at` is when a
    # worker reads changes next, and `leased_until` ends the time for which one worker does that. `last_run` are the
    # counts of the last run, `synced_at` is when it ended, and `error_message` says why it failed.
    return sql.SQL("""
        CREATE TABLE {} (
            collection text COLLATE "C" NOT NULL,
            name text COLLATE "C" NOT NULL,
            source_id uuid NOT NULL,
            definition jsonb NOT NULL,
            watermark text,
            keys_compared_at timestamptz,
            look_at timestamptz NOT NULL,
            leased_until timestamptz,
            last_run jsonb,
            synced_at timestamptz,
            error_message text,
            created_at timestamptz NOT NULL,
            updated_at timestamptz NOT NULL,
            PRIMARY KEY (collection, name)
        )""").format(table)


def _row_changes(table: sql.Identifier) -> Sequence[sql.Composed]:
    """Return SQL for the queue of rows of followed tables that must be read: changed rows, and rows that failed."""
    # Rows that failed could not be stored. `row_key` is the key as text; NULL: every row, as after a TRUNCATE.
    # `row_hash` is of the text and the metadata that could not be stored, so that only a changed row is tried before
    # `due_at`.
    return (
        sql.SQL("""
            CREATE TABLE {} (
                change_id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
                source_id uuid NOT NULL,
                row_key text COLLATE "C",
                due_at timestamptz NOT NULL,
                attempts int NOT NULL,
                row_hash text,
                error_code text,
                error_message text
            )""").format(table),
        sql.SQL("CREATE INDEX row_change_due ON {} (source_id, due_at)").format(table),
        # A key has any length. Entries of triggers are not in it, so that it costs writes of users nothing.
        sql.SQL("CREATE INDEX row_change_problem ON {} USING hash (row_key) WHERE error_code IS NOT NULL").format(
            table
        ),
    )


def collection(names: Names) -> Sequence[sql.Composed]:
    """Return the statements that make the tables of one collection."""
    return (*_sources(names), *_documents(names), *_chunks(names), _runs(names), *query_log(names))


def _sources(names: Names) -> Sequence[sql.Composed]:
    """Return SQL for the table of sources; keys of documents derive from `key` and stay when a folder moves."""
    return (
        sql.SQL("""
            CREATE TABLE {} (
                source_id uuid PRIMARY KEY,
                name text NOT NULL,
                key text NOT NULL,
                root text NOT NULL,
                kind text NOT NULL,
                created_at timestamptz NOT NULL,
                updated_at timestamptz NOT NULL
            )""").format(names.source),
    )


def _documents(names: Names) -> Sequence[sql.Composed]:
    """Return SQL for the table of documents read from files; a document added as one text is only in `chunk`."""
    return (
        *names.creation(
            "document",
            sql.SQL("""
                document_id uuid PRIMARY KEY,
                source_id uuid NOT NULL,
                uri text NOT NULL,
                title text NOT NULL,
                format text NOT NULL,
                encoding text,
                content_hash bytea NOT NULL,
                file_state text,
                size_bytes bigint NOT NULL,
                modified_at timestamptz NOT NULL,
                loader_version int NOT NULL,
                fields jsonb NOT NULL,
                chunker_version int NOT NULL,
                chunk_tokens int NOT NULL,
                overlap_tokens int NOT NULL,
                min_tokens int NOT NULL,
                chunk_count int NOT NULL,
                metadata jsonb NOT NULL,
                created_at timestamptz NOT NULL,
                updated_at timestamptz NOT NULL
            """),
        ),
        sql.SQL("CREATE INDEX {} ON {} (source_id)").format(names.index("source_key"), names.document),
    )


def _chunks(names: Names) -> Sequence[sql.Composed]:
    """Return SQL for the table of chunks, the texts that are searched."""
    # Every version of a text has a new `keyword_id`, because keyword indexes mark deletions by it; `previous_id` is the
    # id that an update replaced. `language` is NULL if it is the collection's.
    return (
        *names.creation(
            "chunk",
            sql.SQL("""
                document_id uuid NOT NULL,
                chunk_id text COLLATE "C" NOT NULL,
                chunk_no int NOT NULL,
                keyword_id bigint GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME {} INCREMENT BY {}),
                previous_id bigint,
                parent_chunk_id text COLLATE "C",
                child_ids text[] NOT NULL,
                chunk_type text NOT NULL,
                source_document text NOT NULL,
                chapter_title text NOT NULL,
                section_title text NOT NULL,
                subsection_title text[] NOT NULL,
                summary text NOT NULL,
                context text NOT NULL,
                chunk_text text NOT NULL,
                language text,
                token_count int,
                char_start int,
                char_end int,
                line int,
                page int,
                place jsonb,
                timestamp_start text,
                timestamp_end text,
                content_hash bytea NOT NULL,
                metadata jsonb NOT NULL,
                created_at timestamptz NOT NULL,
                updated_at timestamptz NOT NULL,
                PRIMARY KEY (document_id, chunk_id)
            """).format(names.keyword_sequence, sql.Literal(ID_BLOCK)),
        ),
        sql.SQL("CREATE INDEX {} ON {} (keyword_id)").format(names.index("keyword_id"), names.chunk),
    )


def _runs(names: Names) -> sql.Composed:
    return sql.SQL("""
        CREATE TABLE {} (
            run_id uuid PRIMARY KEY,
            source_uri text NOT NULL,
            command text NOT NULL,
            client text NOT NULL,
            embedding_model text,
            started_at timestamptz NOT NULL,
            finished_at timestamptz,
            seconds float8,
            added int NOT NULL,
            changed int NOT NULL,
            unchanged int NOT NULL,
            deleted int NOT NULL,
            failed int NOT NULL,
            chunks int NOT NULL,
            problems jsonb NOT NULL
        )""").format(names.ingestion_log)


def query_log(names: Names) -> Sequence[sql.Composed]:
    """Return SQL for a collection's own query log, so that a role that reads it sees no query of other collections."""
    # `query` is NULL if the texts of questions are not kept; `query_hash` is always there.
    return (
        sql.SQL("""
            CREATE TABLE {} (
                query_id uuid PRIMARY KEY,
                asked_at timestamptz NOT NULL,
                query_hash bytea NOT NULL,
                query text,
                mode text NOT NULL,
                filtered bool NOT NULL,
                hits int NOT NULL
            )""").format(names.query_log),
        sql.SQL("CREATE INDEX ON {} (asked_at)").format(names.query_log),
    )
