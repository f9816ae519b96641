"""``semlex follow``: a table is followed, listed, changed and stopped; what is printed, and exit codes."""

import json

import pytest

from tests.support.followed import articles


@pytest.fixture
def table(shell):
    with articles(shell.environment["DATABASE_URL"], rows=3) as table:
        yield table


@pytest.mark.usefixtures("table")
def test_a_table_is_followed_listed_changed_and_stopped(shell):
    follow = ("follow", "shop.articles", "-c", "news", "--model", "none", "--text", "title, body")
    follow += ("--metadata", "author")
    assert shell(*follow).stderr.splitlines()[-2:] == [
        "articles: shop.articles followed; key id; text title, body; changes by comparison",
        "semlex sync --collection news reads its rows now, semlex worker keeps them in step",
    ]
    shell(*follow)  # changes nothing
    refused = shell("follow", "shop.articles", "-c", "news", "--text", "body", code=2).stderr
    assert "followed already, with text=('title', 'body'), metadata=('author',)" in refused
    assert "semlex follow articles --change" in refused.replace(" --collection news", "")
    listed = shell("follow", "--list", "-c", "news").stdout.splitlines()
    assert [line.split() for line in listed] == [
        ["name", "table", "rows", "waiting", "failed", "changes", "in", "step", "at", "(UTC)"],
        ["articles", "shop.articles", "0", "0", "0", "comparison", "not", "yet"],
    ]
    change = ("follow", "articles", "-c", "news", "--change", "--json")
    texts = ("--text", "title || ', ' || body", "--text", "author", "--format", "author=markdown")
    changed = json.loads(shell(*change, *texts).stdout)
    assert changed["text"] == ["title || ', ' || body", "author"]
    assert (changed["metadata"], changed["formats"]) == (["author"], {"author": "markdown"})
    assert json.loads(shell(*change, "--metadata", "", "--heading", "title").stdout)["metadata"] == []
    assert json.loads(shell(*change, "--heading", "").stdout)["heading"] is None
    row = "  articles                 shop.articles: 0 rows, 0 waiting, 0 failed; not yet in step"
    assert f"Followed tables\n{row}" in shell("status", "-c", "news").stdout
    [followed] = json.loads(shell("status", "-c", "news", "--json").stdout)["followed"]
    assert (followed["table"]["name"], followed["rows"]) == ("articles", 0)
    stopped = shell("follow", "articles", "--stop", "-c", "news").stderr
    assert stopped == "articles is not followed any more; 0 documents deleted\n"
    assert shell("follow", "--list", "-c", "news").stderr == (
        "no table is followed: semlex follow --collection news TABLE --text COLUMN follows one\n"
    )


def test_the_sql_of_triggers_is_printed_and_not_run(shell, table):
    follow = ("follow", "shop.articles", "-c", "news", "--model", "none", "--text", "title", "--changes", "trigger")
    shell("follow", "shop.articles", "-c", "news", "--model", "none", "--name", "other", "--text", "body")
    script = shell(*follow, "--sql").stdout
    assert "CREATE OR REPLACE FUNCTION" in script
    assert _triggers(table) == 0
    table.connection.execute(script.encode())
    made = _triggers(table)
    assert made > 0
    shell(*follow)
    assert _triggers(table) == made
    assert shell("follow", "articles", "--sql", "-c", "news").stdout == script
    shell("follow", "articles", "--change", "--changes", "comparison", "-c", "news")
    assert _triggers(table) == 0


def _triggers(table):
    [(count,)] = table.connection.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'shop.articles'::regclass")
    return int(count)


@pytest.mark.usefixtures("table")
def test_mistakes_are_told(shell):
    for arguments, message in (
        ("", "name a table to follow, or give --list alone"),
        ("articles --list", "name a table to follow, or give --list alone"),
        ("articles --stop --change", "--change and --stop exclude each other"),
        ("articles --keep", "--keep needs --stop"),
        ("articles --table b", "--table needs --change"),
        ("articles --stop --text body", "--stop does not accept --text"),
        ("articles --change --name b", "--change does not accept --name"),
        ("articles --text body --format markdown", "--format must be TEXT=FORMAT"),
        ("articles --text titel --schema shop", "did you mean 'title'?"),
        ("articles", "text is empty: name the columns"),
    ):
        assert message in shell("follow", "-c", "news", "--model", "none", *arguments.split(), code=2).stderr
