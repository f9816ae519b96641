"""Databases of the tests' server: copies of a template, and one that test after test uses again."""

import uuid
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex.retriever.synchronous import SyncClient

TEMPLATE = "semlex_test_template"  # has the extension "vector"
PREPARED = "semlex_test_prepared"  # has the tables that all collections share, too
# Dropped tables leave dead rows in the catalogs, and nothing takes them away here.
MOST_USES = 200
CLEANING = "semlex-tests-cleaning"  # the connection that stays on the database that test after test uses

# Everything a test may have made or changed, as one number.
FINGERPRINT = """
WITH ours AS (SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
relations AS (SELECT c.*, nspname FROM pg_class AS c JOIN ours ON ours.oid = relnamespace),
things(thing) AS (
    SELECT concat_ws(' ', 'schema', nspname, nspacl) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'
    UNION ALL SELECT concat_ws(' ', 'relation', nspname, relname, relkind, relacl, reloptions, relowner) FROM relations
    UNION ALL SELECT concat_ws(' ', 'column', nspname, relname, attname, atttypid, attnotnull, attnum)
        FROM pg_attribute JOIN relations ON relations.oid = attrelid WHERE NOT attisdropped
    UNION ALL SELECT concat_ws(' ', 'migration', v) FROM semlex.registry_version AS v
    UNION ALL SELECT concat_ws(' ', 'index', pg_get_indexdef(indexrelid), indisvalid)
        FROM pg_index JOIN relations ON relations.oid = indrelid
    UNION ALL SELECT concat_ws(' ', 'constraint', conname, conrelid)
        FROM pg_constraint JOIN ours ON ours.oid = connamespace
    UNION ALL SELECT concat_ws(' ', 'trigger', tgname, tgrelid, tgenabled) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT concat_ws(' ', 'policy', polname, polrelid) FROM pg_policy
    UNION ALL SELECT concat_ws(' ', 'extension', extname, extversion, extnamespace) FROM pg_extension
    UNION ALL SELECT concat_ws(' ', 'function', proname, proargtypes, proacl)
        FROM pg_proc JOIN ours ON ours.oid = pronamespace
    UNION ALL SELECT concat_ws(' ', 'type', typname) FROM pg_type JOIN ours ON ours.oid = typnamespace
    UNION ALL SELECT concat_ws(' ', 'words', cfgname) FROM pg_ts_config JOIN ours ON ours.oid = cfgnamespace
    UNION ALL SELECT concat_ws(' ', 'rights', defaclrole, defaclnamespace, defaclacl) FROM pg_default_acl
    UNION ALL SELECT concat_ws(' ', 'event', evtname) FROM pg_event_trigger
    UNION ALL SELECT concat_ws(' ', 'publication', pubname) FROM pg_publication
    UNION ALL SELECT concat_ws(' ', 'database', datacl, datdba, datconnlimit, datallowconn)
        FROM pg_database WHERE datname = current_database()
    UNION ALL SELECT concat_ws(' ', 'setting', setrole, setconfig)
        FROM pg_db_role_setting JOIN pg_database AS d ON d.oid = setdatabase WHERE datname = current_database())
SELECT md5(string_agg(thing, chr(10) ORDER BY thing COLLATE "C")) FROM things
"""
# Tables beyond those that all collections share, schemas beyond that of semlex, functions, rows of the shared tables.
CLEAN = """
DO $$
DECLARE names text;
BEGIN
    SELECT string_agg(quote_ident(nspname), ', ') INTO names FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public', 'semlex');
    IF names IS NOT NULL THEN EXECUTE format('DROP SCHEMA %s CASCADE', names); END IF;
    SELECT string_agg(format('%s.%I', relnamespace::regnamespace, relname), ', ') INTO names FROM pg_class
        WHERE relkind IN ('r', 'p') AND (relnamespace = 'public'::regnamespace
            OR relnamespace = 'semlex'::regnamespace
                AND relname NOT IN (
                    'collection', 'embedding_version', 'followed_table', 'job', 'registry_version', 'row_change'));
    IF names IS NOT NULL THEN EXECUTE format('DROP TABLE %s CASCADE', names); END IF;
    SELECT string_agg(oid::regprocedure::text, ', ') INTO names FROM pg_proc
        WHERE pronamespace IN ('public'::regnamespace, 'semlex'::regnamespace)
            AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e');
    IF names IS NOT NULL THEN EXECUTE format('DROP ROUTINE %s CASCADE', names); END IF;
    DELETE FROM semlex.collection;
    DELETE FROM semlex.embedding_version;
    DELETE FROM semlex.job;
    DELETE FROM semlex.followed_table;
    DELETE FROM semlex.row_change;
END $$
"""


def set_in_database(url, name, value):
    with psycopg.connect(url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET {} = {}").format(database, sql.Identifier(name), value))


def session(url):
    """A session of its own, or the one that is given instead of an address: a new one reads the catalogs again."""
    return nullcontext(url) if isinstance(url, psycopg.Connection) else psycopg.connect(url, autocommit=True)


def execute(url, statement, parameters=None):
    """Runs a statement, or several, in a `session`; returns the rows of the first."""
    with session(url) as connection:
        cursor = connection.execute(statement, parameters)
        return [] if cursor.description is None else cursor.fetchall()  # a row may have no columns


@contextmanager
def new_role(url, *rights):
    """The name of a role that may log in and has these rights, such as `SELECT ON t`; one at a time."""
    name = sql.Identifier("semlex_test_role")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        try:
            for right in rights:
                connection.execute(sql.SQL("GRANT {} TO {}").format(sql.SQL(right), name))
            yield "semlex_test_role"
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(name))


@dataclass(frozen=True)
class ServerAddress:
    direct: str  # as a role that may do everything, with nothing in between
    given: str  # as tests do
    owner: str = "postgres"  # the role of `given`; databases are its own
    is_pooled: bool = False  # whether what is in between keeps connections to databases


class Databases:
    def __init__(self, server):
        self._server = server
        self._administration = psycopg.connect(server.direct, autocommit=True)
        self._make(TEMPLATE, "template1")
        with psycopg.connect(self._directly(TEMPLATE), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
        self._make(PREPARED, TEMPLATE)
        # What is in between would keep a connection to the database, which then could not be copied.
        prepared = make_conninfo(self._directly(PREPARED), user=server.owner)
        with SyncClient(prepared, "none", use_reranking=False) as client:
            client.collection("x").count()  # makes it, and what is shared
            client.drop("x")
        with psycopg.connect(self._directly(PREPARED), autocommit=True) as connection:
            self._unchanged = connection.execute(FINGERPRINT).fetchone()
        self._reused, self._cleaning, self._uses = None, self._administration, 0

    def close(self):
        self._cleaning.close()
        self._administration.close()

    def at(self, name):
        return make_conninfo(self._server.given, dbname=name)

    def _directly(self, name):
        return make_conninfo(self._server.direct, dbname=name)

    def _make(self, name, template):
        made = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy OWNER {}")
        names = (sql.Identifier(one) for one in (name, template, self._server.owner))
        self._administration.execute(made.format(*names))

    def _drop(self, name):
        self._administration.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @contextmanager
    def copy(self, template):
        name = f"test_{uuid.uuid4().hex}"
        self._make(name, template)
        try:
            yield self.at(name)
        finally:
            self._drop(name)

    @contextmanager
    def reused(self):
        """Address of a copy of `PREPARED` that the next test gets as well, if this one leaves it as it was."""
        if self._server.is_pooled:  # a session that ends between two tests would be lent to the second one
            with self.copy(PREPARED) as url:
                yield url
            return
        if self._reused is None:
            self._reused, self._uses = f"test_{uuid.uuid4().hex}", 0
            self._make(self._reused, PREPARED)
            # One connection for all uses: a new one would read the catalogs again.
            self._cleaning = psycopg.connect(self._directly(self._reused), autocommit=True, application_name=CLEANING)
        self._uses += 1
        try:
            yield self.at(self._reused)
        finally:
            if self._uses == MOST_USES or not self._clean():
                self._cleaning.close()
                self._drop(self._reused)
                self._reused = None

    def _clean(self):
        """Removes what a test has made; False if the database is not as it was before."""
        try:
            # Nobody waits for their end here: whoever still holds a lock is waited for below, by its lock.
            self._cleaning.execute("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()""")
            self._cleaning.execute(CLEAN)
            return self._cleaning.execute(FINGERPRINT).fetchone() == self._unchanged
        except psycopg.Error:
            return False
