"""`follow`, `followed`, `change` and `stop`: definitions of tables, and triggers that note their changes."""

import asyncio
import re
from dataclasses import replace
from functools import partial

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex import SyncClient
from semlex.errors import ConfigurationError, ConnectionFailedError, PrivilegeError
from semlex.ingest.followed.run import NEXT_LOOK
from semlex.ingest.indexer import Indexer
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.followed.definitions import bound_times
from semlex.store.followed.triggers import TableTriggers
from semlex.types.followed import FollowedStatus
from tests.support.databases import new_role
from tests.support.folders import folder_with
from tests.support.followed import KEYS, RELATIONS, articles, trigger_function
from tests.support.lost_answers import lose_answers
from tests.support.retrievers import opened, sync_opened

NEWS = {"model": "none", "collection": "news"}
retriever = partial(sync_opened, **NEWS)
partitioned = pytest.mark.parametrize("table", ["partitioned"], indirect=True)
TRIGGERS = [("shop.articles", 4), *((f"shop.articles_{number}", 4) for number in range(3))]  # of such a table


@pytest.fixture
def table(request, database_url):
    with articles(database_url, relation=getattr(request, "param", "table"), rows=3) as table:
        yield table


@pytest.fixture
def news(database_url):
    with retriever(database_url) as opened:
        yield opened


@pytest.mark.parametrize(("key", "relation"), [*zip(KEYS, RELATIONS, strict=True)])
def test_tables_and_views_are_followed_by_their_keys(database_url, key, relation):
    with articles(database_url, key, relation, rows=3) as table, retriever(database_url) as news:
        followed = news.tables.follow(**table.options())
        assert (followed.name, followed.schema, followed.table) == (table.name, "shop", table.name)
        assert (followed.key, followed.key_kinds) == (table.key_columns, table.key_kinds)
        assert followed.changes == "comparison"
        assert news.tables.followed() == [FollowedStatus(table=followed, rows=0, waiting=0, problems=[])]
        # The primary key is the key unless another is named.
        if "view" not in relation:
            assert news.tables.follow(f"shop.{table.name}", name="again", text="body").key == table.key_columns
            return
        refused = ({"key": None}, "without a primary key.*--key"), ({"changes": "trigger"}, "changes='comparison'")
        for options, remedy in refused:
            with pytest.raises(ConfigurationError, match=f"{table.name} is a .*view.*{remedy}"):
                news.tables.follow(**table.options(name="again", **options))


def test_a_definition_is_stored_changed_and_dropped(table, news):
    text = ("title", "upper(body) || '100%' -- all of it")
    more = {"live": ["status", "price"], "updated_at": "updated_at", "overlap": 10, "keys_every": 0}
    options = table.options(name="posts", text=text, heading="title", formats={"title": "markdown"}, **more)
    first = news.tables.follow(**options)
    assert (first.text, first.formats) == (text, {"title": "markdown"})
    assert (first.changes, first.updated_at) == ("column", "updated_at")
    assert news.tables.follow(**options) == first  # the same call changes nothing
    assert [status.table for status in news.tables.followed()] == [first]
    with pytest.raises(ConfigurationError, match=r"followed already, with metadata=\('author', .*tables.change"):
        news.tables.follow(**options | {"metadata": []})
    with pytest.raises(TypeError, match="did you mean 'metadata'"):
        news.tables.follow(**table.options(meta_data=["author"]))
    assert news.tables.stop("posts") == 0
    followed = news.tables.follow(**table.options())
    changed = news.tables.change("articles", text="body", live=["status"])
    assert changed == replace(followed, text=("body",), live=("status",))
    assert news.tables.change("articles", updated_at="updated_at").changes == "column"
    assert news.tables.change("articles", overlap=1).overlap == 1
    assert news.tables.change("articles", changes="comparison").updated_at is None
    assert news.tables.change("articles", metadata=[]).metadata == ()
    with pytest.raises(ConfigurationError, match="did you mean 'title'"):
        news.tables.change("articles", heading="titel")
    with pytest.raises(ConfigurationError, match=r"no table 'article' is followed; did you mean 'articles'"):
        news.tables.change("article", text="body")
    assert [status.table.heading for status in news.tables.followed()] == [None]
    table.connection.execute("ALTER TABLE shop.articles RENAME TO posts; ALTER TABLE shop.posts SET SCHEMA public")
    moved = news.tables.change("articles", table="public.posts")
    assert (moved.name, moved.schema, moved.table) == ("articles", "public", "posts")
    assert [source.name for source in news.documents.sources()] == ["articles"]
    with pytest.raises(ConfigurationError, match=r"semlex follow articles --stop"):
        news.delete(source="articles")
    assert (news.tables.stop("articles"), news.tables.followed(), news.documents.sources()) == (0, [], [])
    with pytest.raises(ConfigurationError, match=r"no table 'articles' is followed; followed tables: none"):
        news.tables.stop("articles")


def test_what_is_stored_when_the_answer_is_lost_was_not_done_by_another_program(table, news, monkeypatch):
    async def refused(*_, **__):
        raise PrivilegeError("no right to make triggers", sqlstate="42501")

    with monkeypatch.context() as patch:
        lost = lose_answers(patch, "follow the table", "change the followed table", "stop following the table")
        followed = news.tables.follow(**table.options())
        changed = news.tables.change("articles", text="body")
        assert changed.text == ("body",) != followed.text
        assert [status.table for status in news.tables.followed()] == [changed]
        assert (news.tables.stop("articles"), news.tables.followed(), len(lost)) == (0, [], 3)
    # A table that cannot get triggers is not followed.
    lost = lose_answers(monkeypatch, "follow the table")
    monkeypatch.setattr(TableTriggers, "keep", refused)
    with pytest.raises(PrivilegeError):
        news.tables.follow(**table.options(changes="trigger"))
    assert (lost, news.tables.followed()) == ({"follow the table"}, [])


def test_a_definition_is_part_of_a_callers_transaction(database_url, table, news):
    news.count()
    with psycopg.connect(database_url) as connection:
        mine = news.using(connection).tables
        assert [status.table for status in mine.followed()] == [] == news.tables.followed()
        followed = mine.follow(**table.options())
        assert ([status.table for status in mine.followed()], news.tables.followed()) == ([followed], [])
        connection.rollback()
        assert news.tables.followed() == []
    # The first call in a schema may follow a table of that schema.
    with SyncClient(database_url, "none", use_reranking=False, schema="shop") as client:
        own = client.collection("news").tables
        assert own.ddl(**table.options())
        followed = own.follow(**table.options())
        assert [status.table for status in own.followed()] == [followed]


@pytest.mark.direct
async def test_behind_a_transaction_pooler(database_url, table):
    async with TransactionPooler(database_url, size=2) as pooler, opened(pooler.address, **NEWS) as news:
        followed = await news.tables.follow(**table.options(changes="trigger", text=["upper(body)"]))
        await news.tables.sync()
        table.insert(3)
        [status] = await news.tables.followed()
        assert (status.table, status.rows, status.waiting) == (followed, 3, 1)
        await news.tables.change("articles", updated_at="updated_at")
        [report] = await news.tables.sync()
        assert (report.added, report.changed, report.deleted, report.failed) == (1, 0, 0, 0)
        assert await news.tables.stop("articles") == 4


async def test_of_several_who_follow_a_table_at_once_all_follow_it_alike(database_url, table):
    async with opened(database_url, **NEWS) as one, opened(database_url, **NEWS) as other:
        calls = [(one, "title"), (other, "body"), (other, "title"), (one, "body")]
        follow = (news.tables.follow(**table.options(text=text)) for news, text in calls)
        done = await asyncio.gather(*follow, return_exceptions=True)
        [status] = await one.tables.followed()
        for (_, text), result in zip(calls, done, strict=True):
            assert result == status.table if (text,) == status.table.text else isinstance(result, ConfigurationError)


def test_rows_are_deleted_or_kept_when_their_table_is_no_longer_followed(table, news, monkeypatch):
    news.tables.follow(**table.options())
    news.tables.sync()
    assert news.tables.stop("articles", keep=True) == 0
    assert (news.tables.sync(), news.count(), news.tables.followed()) == ([], 3, [])
    assert [(source.name, source.documents) for source in news.documents.sources()] == [("articles", 3)]
    # They are taken over as they are.
    news.tables.follow(**table.options())
    table.delete(0)
    [report] = news.tables.sync()
    assert (report.unchanged, report.deleted, report.added) == (2, 1, 0)
    with monkeypatch.context() as patch:
        patch.setattr(Indexer, "delete", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            news.tables.stop("articles")
    assert (news.tables.followed(), news.count()) == ([], 2)
    assert (news.tables.stop("articles"), news.count(), news.documents.sources()) == (2, 0, [])


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER id TYPE text", r"'id' of shop.articles \(key\) was bigint when it was followed, and is text now"),
        ("ALTER author TYPE jsonb USING '1'", r"'author' of shop.articles \(text, metadata\) was text .* jsonb now"),
        ("ALTER author TYPE varchar(80), ALTER title TYPE varchar(10), ALTER id TYPE int", None),
        ("ALTER status DROP DEFAULT, ALTER status TYPE int USING 1", None),
        ("ALTER published_at TYPE timestamptz(3)", None),
        ("ALTER published_at TYPE timestamp(3)", r"'published_at' .* is timestamp\(3\) without time zone now"),
        ("RENAME published_at TO published", r"no column 'published_at' \(metadata=, --metadata\); did you mean 'publ"),
    ],
)
def test_columns_that_are_not_as_they_were_are_an_error_until_they_are_accepted(table, news, statement, message):
    news.tables.follow(**table.options(text=["body", "author"], live="status"))
    news.tables.sync()
    table.connection.execute(sql.SQL("ALTER TABLE shop.articles {}").format(sql.SQL(statement)))
    if message is None:
        assert [report.unchanged for report in news.tables.sync()] == [3]
        return
    with pytest.raises(ConfigurationError, match=message + ".*semlex follow articles --change"):
        news.tables.sync()
    assert re.search(message, news.tables.followed()[0].error or "")
    assert news.count() == 3
    news.tables.change("articles", metadata=["author"])
    [report] = news.tables.sync()
    assert (news.count(), report.failed, news.tables.followed()[0].error) == (3, 0, None)
    keys = map(str if statement == "ALTER id TYPE text" else int, range(3))
    assert {hit.key: hit.columns for hit in news.search("apple", columns=["id"])} == {key: {"id": key} for key in keys}


def test_a_table_that_is_gone_keeps_no_other_waiting(table, news, caplog):
    for name in ("first", "gone", "last", "lost"):
        made = "CREATE TABLE {0} (LIKE shop.articles INCLUDING ALL); INSERT INTO {0} (id, body) VALUES (1, 'apple')"
        table.connection.execute(sql.SQL(made).format(sql.Identifier("shop", name)))
        news.tables.follow(**table.options(table=name))
    table.connection.execute("DROP TABLE shop.gone, shop.lost")
    with pytest.raises(ConfigurationError, match=r"shop\.gone"):
        news.tables.sync()
    assert {hit.table for hit in news.search("apple")} == {"first", "last"}
    assert "shop.lost" in caplog.text


def test_folders_and_tables_have_one_name_each(table, news, tmp_path):
    folder = folder_with(tmp_path / "articles", {"a.md": "apple"})
    news.index(folder)
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigurationError, match=r"a source of files is named 'articles'.*--name"):
        news.tables.follow(**table.options())
    news.tables.follow(**table.options(name="posts"))
    with pytest.raises(ConfigurationError, match=r"the source 'posts' holds the rows of a table.*--source"):
        news.index(tmp_path / "other", source="posts")
    assert [source.name for source in news.documents.sources()] == ["articles", "posts"]
    # What walks folders leaves tables alone.
    assert (len(news.sync(folder).plan.deleted), news.delete(vanished=True).documents) == (0, 0)
    news.documents.rechunk(chunk_tokens=100)
    assert {source.name: source.root for source in news.documents.sources()}["posts"] == "shop.articles"


REFUSED = [
    ({"table": "artikel"}, r"no table or view shop.artikel exists in host=.*; did you mean shop.articles\?"),
    ({"table": "articles", "schema": None}, r"no table or view public.articles .* did you mean shop.articles\?"),
    ({"table": ""}, "table is blank"),
    ({"text": ["titel"]}, r"shop.articles has no column 'titel' \(text=, --text\); did you mean 'title'\?"),
    ({"heading": "x"}, r"no column 'x' \(heading=, --heading\); it has id, title, .*updated_at"),
    ({"key": "nr"}, r"no column 'nr' \(key=, --key\)"),
    ({"key": "author"}, r'over author alone.*columns: id.*CREATE UNIQUE INDEX ON "shop"\."articles" \("author"\);'),
    ({"table": "notes", "key": None}, "notes is a table without a primary key.*unique columns: title"),
    ({"key": ["id", "published_at"]}, r"key column 'published_at' .* is timestamp with.*cast it in a view"),
    ({"text": ["title", "title"]}, r"text has 'title' twice"),
    ({"text": []}, r"text is empty: name the columns"),
    ({"text": [""]}, r"text is blank"),
    ({"text": ["title || "]}, r"'title \|\| ' in text= is neither a column .*: syntax error"),
    ({"text": ["title) FROM shop.articles; DROP TABLE shop.articles;--"]}, r"neither a column.* nor an SQL"),
    ({"text": ["count(*)"]}, r"'count\(\*\)' in text= is neither.*aggregate functions are not allowed\."),
    ({"text": ["unnest(tags)"]}, r"set-returning functions are not allowed\."),
    ({"text": ["unaccent(title)"]}, r"function unaccent\(text\) does not exist\. Functions of extensions need"),
    ({"text": ["title || $1"]}, r"neither a column.*: it has a parameter, such as \$1"),
    ({"text": "title, body"}, r"'title, body' in text= gives several values for each row: name each value"),
    ({"text": ["raw"]}, r"column 'raw' of shop.articles is bytea, which cannot be read as text: leave it out of text"),
    ({"metadata": 7}, "metadata"),
    ({"formats": {"author": "markdown"}}, r"formats= names 'author', which is not in text= \(title, body\)"),
    ({"formats": {"body": "pdf"}}, r"the unknown format .pdf.; known formats: .*markdown"),
    ({"formats": {"body": "markdwn"}}, r"the unknown format 'markdwn'; did you mean 'markdown'\?"),
    ({"formats": ["body"]}, r"formats must be a mapping"),
    ({"changes": "column"}, r"changes='column' needs a column with the time.*--updated-at"),
    ({"changes": "trigger", "updated_at": "updated_at"}, r"updated_at is for changes='column' only"),
    ({"changes": "sometimes"}, r"changes must be 'comparison', 'column', 'trigger' or None"),
    ({"updated_at": "author"}, r"'author' of shop.articles is text; updated_at must be a timestamp"),
    ({"overlap": -1, "updated_at": "updated_at"}, r"overlap"),
    ({"keys_every": 5}, r"keys_every has no effect with changes='comparison'"),
    ({"overlap": 5, "changes": "trigger"}, r"overlap has no effect with changes='trigger'"),
    ({"table": "semlex.job", "schema": None}, r"semlex.job is a table of semlex itself"),
    ({"table": "job", "schema": "semlex"}, r"semlex.job is a table of semlex itself"),
    ({"name": "a/b"}, r"the name 'a/b' has a '/'"),
    ({"name": ""}, r"name is blank"),
    ({"source_database": "postgresql://ann:geheim@db.example/shop"}, r"holds a password.*env:NAME"),
    ({"source_database": "env:SEMLEX_TEST_UNSET"}, r"environment variable SEMLEX_TEST_UNSET is not set"),
    ({"source_database": "env:SEMLEX_TEST_UNSET", "live": ["status"]}, r"live columns .* metadata"),
    ({"source_database": "env:SEMLEX_TEST_UNSET", "changes": "trigger"}, r"changes='trigger' needs a table in"),
]


def test_what_cannot_be_followed_is_refused_with_a_remedy(table, database_url):
    table.connection.execute("ALTER TABLE shop.articles ADD raw bytea; CREATE TABLE shop.notes AS TABLE shop.articles")
    table.connection.execute("ALTER TABLE shop.notes ADD UNIQUE (title)")
    with SyncClient(database_url, "none", use_reranking=False) as client:
        news = client.collection("news")
        for options, message in REFUSED:
            with pytest.raises(ConfigurationError, match=message) as caught:
                news.tables.follow(**table.options(**options))
            assert "geheim" not in str(caught.value)
        assert client.collections() == []  # none was made for it
        assert news.tables.follow("shop.notes", key="title", text="body").key_kinds == ("text",)


@pytest.mark.superuser
def test_a_role_needs_to_read_the_columns_alone(database_url, table, news):
    run, writing = table.connection.execute, ("CREATE, USAGE ON SCHEMA semlex", "ALL ON ALL TABLES IN SCHEMA semlex")
    with new_role(database_url, *writing) as role, retriever(database_url, role=role) as theirs:
        with pytest.raises(PrivilegeError, match=r"may not read shop\.articles") as refused:
            theirs.tables.follow(**table.options())
        grants = f'GRANT USAGE ON SCHEMA "shop" TO "{role}"; GRANT SELECT ON "shop"."articles" TO "{role}";'
        assert str(refused.value).endswith("can allow it: " + grants)
        run(f"GRANT USAGE ON SCHEMA shop TO {role}; GRANT SELECT (id, title) ON shop.articles TO {role}")
        with pytest.raises(PrivilegeError) as refused:
            theirs.tables.follow(**table.options())
        grants = str(refused.value).partition("can allow it: ")[2]
        assert grants.startswith('GRANT SELECT ("body", "author", "published_at") ON')
        run(grants.encode())
        assert theirs.tables.follow(**table.options()).key == ("id",)
        # Reading the status needs no right to the definitions.
        run(f"REVOKE ALL ON semlex.followed_table, semlex.row_change FROM {role}")
        assert theirs.status().followed is None
        with pytest.raises(PrivilegeError, match="followed_table"):
            theirs.tables.followed()
    assert [status.table.name for status in news.status().followed or ()] == ["articles"]


def test_a_table_of_another_database_is_followed(databases, news, monkeypatch):
    with databases.copy("template1") as other, articles(other) as table:
        monkeypatch.setenv("SHOP_DATABASE", other)
        followed = news.tables.follow(**table.options(source_database="env:SHOP_DATABASE"))
        assert (followed.source_database, followed.key_kinds) == ("env:SHOP_DATABASE", ("int",))
        address = make_conninfo(**{k: v for k, v in conninfo_to_dict(other).items() if k != "password"})
        assert news.tables.change("articles", source_database=address).source_database == address
        with pytest.raises(ConfigurationError, match="live columns"):
            news.tables.change("articles", live="status")
        monkeypatch.setenv("SHOP_DATABASE", make_conninfo(other, host="127.0.0.1", port="1"))
        with pytest.raises(ConnectionFailedError):
            news.tables.change("articles", source_database="env:SHOP_DATABASE")


def test_a_restored_collection_follows_the_table_by_comparison(database_url, table, news, tmp_path):
    async def limit_waits():  # as a worker does after the server's clock stepped back
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await bound_times(connection, "semlex", 60.0, NEXT_LOOK)

    followed = news.tables.follow(**table.options(changes="trigger", formats={"body": "markdown"}, live="status"))
    news.tables.follow(**table.options(name="posts", text="upper(title)"))
    news.tables.sync()
    table.insert(3)
    news.tables.dump(tmp_path / "dump")
    with SyncClient(database_url, "none", use_reranking=False) as client:
        first_sync, no_triggers = client.restore(tmp_path / "dump", "copy").warnings
        assert first_sync.endswith("not read until you run semlex sync, which runs SQL from the dump: articles, posts")
        assert no_triggers.startswith("changes of articles were noticed by triggers, which are not restored")
        copy = client.collection("copy")
        first, second = copy.tables.followed()
        assert (first.table, first.rows, first.waiting) == (replace(followed, changes="comparison"), 3, 0)
        assert second.table.text == ("upper(title)",)
        # A worker would read SQL of a stranger.
        asyncio.run(limit_waits())
        due = "SELECT name FROM semlex.followed_table WHERE collection = 'copy' AND look_at < '9999-01-01'"
        assert table.connection.execute(due).fetchall() == []
        reports = [(one.name, one.added, one.changed, one.unchanged) for one in copy.tables.sync()]
        assert reports == [("articles", 1, 0, 3), ("posts", 1, 0, 3)]
        assert {one.state for one in copy.documents.list().documents} == {"row"}
        # What waits for the first collection still does.
        assert [status.waiting for status in news.tables.followed()] == [1, 0]
        copy.drop()
    assert news.tables.followed()[0].table == followed


def triggers(table):
    return table.connection.execute(
        "SELECT tgrelid::regclass::text, count(*) FROM pg_trigger WHERE tgname LIKE 'semlex%' GROUP BY 1 ORDER BY 1"
    ).fetchall()


def waiting(news):
    return sum(status.waiting for status in news.tables.followed())


@partitioned
def test_changes_wait_and_are_stored(table, news):
    news.tables.follow(**table.options(changes="trigger"))
    assert triggers(table) == TRIGGERS
    assert ([report.added for report in news.tables.sync()], news.count()) == ([3], 3)
    table.insert(3, body="banana")
    table.update(1, body="cherry")
    table.update(2, status="hidden")
    table.delete(0)
    assert waiting(news) == 3
    [report] = news.tables.sync()
    assert (report.added, report.changed, report.deleted, report.failed, waiting(news)) == (1, 1, 1, 0, 0)
    assert report.unchanged is None  # the other rows were not looked at
    assert {hit.key for hit in news.search("banana cherry")} == {1, 3}
    # A sync stores changes that a killed process had claimed.
    table.update(1, body="plum")
    table.connection.execute("UPDATE semlex.row_change SET due_at = now() + interval '1 hour'")
    assert ([report.changed for report in news.tables.sync()], waiting(news)) == ([1], 0)
    # A changed definition gets triggers of its own.
    news.tables.change("articles", live=["status"], metadata=["author", "price"])
    news.tables.sync()
    table.update(1, price=2)
    table.update(1, published_at="2026-01-01", status="hidden")
    assert waiting(news) == 1
    table.connection.execute("ALTER TABLE shop.articles RENAME TO posts; CREATE TABLE shop.articles (LIKE shop.posts)")
    news.tables.change("articles", table="shop.posts")
    assert triggers(table)[-1] == ("shop.posts", 4)
    news.tables.change("articles", changes="comparison")
    assert triggers(table) == []
    news.tables.change("articles", changes="trigger")
    assert triggers(table)[-1] == ("shop.posts", 4)
    # Another table has taken its place.
    table.connection.execute("ALTER TABLE shop.articles ADD PRIMARY KEY (id)")
    news.tables.change("articles", table="shop.articles")
    assert triggers(table) == [("shop.articles", 4)]


@partitioned
@pytest.mark.parametrize("way", ["stopped", "kept", "dropped"])
def test_triggers_end_with_what_they_are_for(table, news, way):
    news.tables.follow(**table.options(changes="trigger"))
    table.insert(3)
    news.drop() if way == "dropped" else news.tables.stop("articles", keep=way == "kept")
    table.insert(4)
    assert triggers(table) == []
    left = "SELECT (SELECT count(*) FROM semlex.row_change), (SELECT count(*) FROM semlex.followed_table)"
    assert table.connection.execute(left).fetchone() == (0, 0)


@pytest.mark.superuser
@pytest.mark.direct
@partitioned
def test_without_the_right_nothing_is_followed_until_the_sql_was_run(database_url, table, caplog):
    rights = ("USAGE ON SCHEMA shop", "SELECT ON shop.articles")
    with (
        new_role(database_url, *rights, "ALL ON SCHEMA semlex", "ALL ON ALL TABLES IN SCHEMA semlex") as role,
        sync_opened(make_conninfo(database_url, user=role), "none", collection="news") as news,
    ):
        options = table.options(changes="trigger")
        with pytest.raises(PrivilegeError, match=r"TRIGGER on shop\.articles and every .* articles -c news --sql"):
            news.tables.follow(**options)
        assert news.tables.followed() == []
        with pytest.raises(ConfigurationError, match="no table 'articles' is followed"):
            news.tables.ddl("articles")
        script = news.tables.ddl(**options)
        assert triggers(table) == []
        table.connection.execute("DROP FUNCTION " + trigger_function(table.connection))  # what the attempt has left
        for _ in range(2):  # what is there is made again
            table.connection.execute(script.encode())
        news.tables.follow(**options)
        assert news.tables.ddl("articles") == script
        news.tables.sync()
        table.insert(3)
        assert waiting(news) == 1
        with pytest.raises(PrivilegeError):
            news.tables.change("articles", text="title")
        assert news.tables.followed()[0].table.text == ("title", "body")
        table.insert(4)
        assert [report.added for report in news.tables.sync()] == [2]
        table.connection.execute("ALTER TABLE shop.articles DISABLE TRIGGER ALL")
        assert "articles -c news --sql" in news.tables.sync()[0].warnings[0]
        table.connection.execute("ALTER TABLE shop.articles ENABLE TRIGGER ALL")
        news.tables.stop("articles")
        assert triggers(table) == TRIGGERS
        table.insert(5)  # they do nothing
        assert table.connection.execute("SELECT count(*) FROM semlex.row_change").fetchone() == (0,)
        [message] = [text for text in caplog.messages if "DROP FUNCTION" in text]
        table.connection.execute(message[message.index("DROP FUNCTION") :].encode())
        assert triggers(table) == []
        news.drop()
