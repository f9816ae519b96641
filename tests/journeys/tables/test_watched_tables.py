"""Tables whose changes triggers note: followed, changed, stopped, and with their collection dropped."""

from __future__ import annotations

import pytest
from psycopg.conninfo import make_conninfo

from semlex.errors import ConfigurationError, PrivilegeError
from tests.support.databases import new_role
from tests.support.followed import articles, trigger_function
from tests.support.retrievers import sync_opened


@pytest.fixture
def table(database_url):
    with articles(database_url, relation="partitioned", rows=3) as table:
        yield table


@pytest.fixture
def news(database_url):
    with sync_opened(database_url, "none", collection="news") as opened:
        yield opened


def triggers(table):
    return table.connection.execute(
        "SELECT tgrelid::regclass::text, count(*) FROM pg_trigger WHERE tgname LIKE 'semlex%' GROUP BY 1 ORDER BY 1"
    ).fetchall()


EVERY = [("shop.articles", 4), *((f"shop.articles_{number}", 4) for number in range(3))]


def waiting(news):
    return sum(status.waiting for status in news.tables.followed())


def test_changes_wait_and_are_stored(table, news):
    news.tables.follow(**table.options(changes="trigger"))
    assert triggers(table) == EVERY
    news.tables.sync()
    assert news.count() == 3
    table.insert(3, body="banana")
    table.update(1, body="cherry")
    table.update(2, status="hidden")
    table.delete(0)
    assert waiting(news) == 3
    [report] = news.tables.sync()
    assert (report.added, report.changed, report.deleted, report.failed) == (1, 1, 1, 0)
    assert report.unchanged is None  # the other rows were not looked at
    assert waiting(news) == 0
    assert {hit.key for hit in news.search("banana cherry")} == {1, 3}


def test_a_sync_stores_changes_that_a_killed_process_had_claimed(table, news):
    news.tables.follow(**table.options(changes="trigger"))
    news.tables.sync()
    table.update(1, body="cherry")
    table.connection.execute("UPDATE semlex.row_change SET due_at = now() + interval '1 hour'")
    [report] = news.tables.sync()
    assert (report.changed, waiting(news)) == (1, 0)


def test_a_changed_definition_has_its_own_triggers(table, news):
    news.tables.follow(**table.options(changes="trigger"))
    news.tables.sync()
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


@pytest.mark.parametrize("way", ["stopped", "kept", "dropped"])
def test_triggers_end_with_what_they_are_for(database_url, table, way):
    with sync_opened(database_url, "none", collection="news") as news:
        news.tables.follow(**table.options(changes="trigger"))
        table.insert(3)
        if way == "dropped":
            news.drop()
        else:
            news.tables.stop("articles", keep=way == "kept")
        table.insert(4)
    assert triggers(table) == []
    left = "SELECT (SELECT count(*) FROM semlex.row_change), (SELECT count(*) FROM semlex.followed_table)"
    assert table.connection.execute(left).fetchone() == (0, 0)


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
        [report] = news.tables.sync()
        assert "articles -c news --sql" in report.warnings[0]
        table.connection.execute("ALTER TABLE shop.articles ENABLE TRIGGER ALL")
        news.tables.stop("articles")
        assert triggers(table) == EVERY
        table.insert(5)  # they do nothing
        assert table.connection.execute("SELECT count(*) FROM semlex.row_change").fetchone() == (0,)
        [message] = [text for text in caplog.messages if "DROP FUNCTION" in text]
        table.connection.execute(message[message.index("DROP FUNCTION") :].encode())
        assert triggers(table) == []
        news.drop()
