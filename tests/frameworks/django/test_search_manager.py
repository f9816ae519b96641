"""Model instances in the order of a search, narrowed by Django's conditions, in its transactions."""

import asyncio

import pytest
from django.core.management import CommandError, call_command
from django.core.paginator import Paginator
from django.db import connection, models, transaction
from django.db.migrations.writer import OperationWriter
from django.test.utils import CaptureQueriesContext

import semlex.integrations.django
from semlex.errors import ConfigurationError
from semlex.integrations.django import FollowTable, SearchManager
from semlex.integrations.django.clients import client_of
from tests.frameworks.django.shop.models import Article, Author, Line, Page

pytestmark = pytest.mark.usefixtures("shop")


def filled(rows=30):
    author = Author.objects.create(name="ann")
    Article.objects.bulk_create(
        Article(title=f"title {number}", body="apple", tenant=number % 3, author=author if number % 2 else None)
        for number in range(rows)
    )
    call_command("semlex_sync", verbosity=0)
    return Article


def test_instances_come_in_the_order_of_their_hits():
    articles = filled()
    with CaptureQueriesContext(connection) as captured:
        found = articles.search.query("title 7 apple").select_related("author")[:10]
        assert len(captured) == 1  # beside the search itself
        assert found[0].author is None or found[0].author.name == "ann"
        assert len(captured) == 1
    hits = articles.search.collection.search("title 7 apple", 10)
    assert [one.pk for one in found] == [hit.key for hit in hits] == [one.hit.key for one in found]
    rows = articles.search.query("apple")
    assert len(rows) == rows.count() == 30
    assert rows
    assert rows.first() == rows[0] == next(iter(rows))
    assert [one.pk for one in rows[3:5]] == [one.pk for one in rows][3:5]
    assert repr(articles.search.query("apple", mode="keyword").only("title")).startswith("<RankedRows [<Article: ")
    pages = Paginator(articles.search.query("apple"), 12)
    assert [len(page.object_list) for page in pages] == [12, 12, 6]

    async def gathered():
        return [one.pk async for one in articles.search.query("apple")]

    assert asyncio.run(gathered()) == [one.pk for one in rows]


def test_conditions_of_django_and_of_semlex():
    articles = filled(140)
    query = articles.search.query("apple")
    assert [one.tenant for one in query.filter(tenant=1)[:40]] == [1] * 40
    worst = [one.pk for one in query[:140]][-3:]
    assert [one.pk for one in query.filter(pk__in=worst)[:10]] == worst
    assert query.filter(author__name="bob")[:10] == query.filter(pk__in=[])[:10] == []
    assert len(query.exclude(tenant=1).filter(author__name="ann")[:20]) == 20
    noted = query.annotate(doubled=models.F("tenant") * 2)[:1]
    assert noted[0].doubled == 2 * noted[0].tenant
    articles.objects.filter(pk__in=worst).update(status="draft")
    drafts = articles.search.query("apple", filters="@row.status = 'draft'")
    assert sorted(one.pk for one in drafts) == sorted(worst)
    assert [one.pk for one in drafts.filter(pk=worst[0])] == worst[:1]
    articles.objects.filter(pk__gt=worst[0] - 1_000).delete()
    assert not query.filter(tenant=1)


def test_a_search_is_in_the_transaction_of_django():
    articles = filled(5)
    with transaction.atomic():
        first = articles.objects.first()
        articles.objects.filter(pk=first.pk).update(status="draft")
        assert first not in list(articles.search.query("apple", filters="@row.status = 'public'"))
        articles.objects.all().delete()
        assert list(articles.search.query("apple")) == []
        transaction.set_rollback(True)
    assert len(articles.search.query("apple")) == 5


def test_keys_of_every_kind_and_tables_with_triggers():
    Page.objects.bulk_create(Page(text=f"apple {number}") for number in range(3))
    Line.objects.bulk_create(Line(page=number % 2, number=number, text=f"apple {number}") for number in range(60))
    call_command("semlex_sync", verbosity=0)
    assert {one.pk for one in Page.search.query("apple")} == {one.pk for one in Page.objects.all()}
    lines = list(Line.search.query("apple"))
    assert {one.hit.key for one in lines} == {one.pk for one in lines} == {(n % 2, n) for n in range(60)}
    last = [one.pk for one in lines][-2:]
    found = Line.search.query("apple").filter(number__in=[number for _, number in last])[:5]
    assert [one.pk for one in found] == last


def test_the_operation_of_a_migration():
    tables = client_of("default").collection("shelf").tables
    followed = [one.table for one in tables.followed()]
    assert [one.name for one in followed] == ["pages", "shop_article", "shop_line"]
    assert (followed[1].text, followed[1].metadata) == (("title", "text"), ("author_id",))
    call_command("migrate", "shop", "0001", verbosity=0)
    assert [one.table.name for one in tables.followed()] == ["shop_article"]
    call_command("migrate", verbosity=0)
    assert len(tables.followed()) == 3
    operation = FollowTable("Page", "shelf", "pages", text=["text"])
    text, imports = OperationWriter(operation, indentation=0).serialize()
    assert "import semlex.integrations.django.operations" in imports
    again = eval(text.rstrip(","), {"semlex": semlex})  # noqa: S307 - ours
    assert again.deconstruct() == operation.deconstruct()
    assert operation.describe() == "Follow the table of Page in the collection shelf"


def test_the_command_reports_and_refuses(capsys):
    articles = filled(3)
    articles.objects.create(title="new", body="pear")
    call_command("semlex_sync", "shop.Article", "--dry-run")
    call_command("semlex_sync", "shop.article", "--compare")
    said = "shop.Article: 1 added, 0 changed, 0 refreshed, 0 deleted, 0 failed\n"
    assert capsys.readouterr().out == 2 * said
    articles.objects.all().delete()
    with pytest.raises(CommandError, match="some tables were not synced"):
        call_command("semlex_sync", "shop.article")
    assert "shop.Article: " in capsys.readouterr().err
    call_command("semlex_sync", "shop.article", "--allow-empty")
    assert "4 deleted" in capsys.readouterr().out
    with pytest.raises(CommandError, match=r"models with one: shop\.article, shop\.line, shop\.page"):
        call_command("semlex_sync", "shop.Author")


def test_what_would_lose_the_order_or_a_bound():
    articles = filled(1)
    rows = articles.search.query("apple")
    for name in ("order_by", "values", "delete", "update", "aggregate", "union"):
        assert not hasattr(rows, name)
    with pytest.raises(ConfigurationError, match="at most 1,000 rows"):
        rows[:1001]
    with pytest.raises(ValueError, match="negative"):
        rows[-1]
    with pytest.raises(IndexError):
        rows[5]
    with pytest.raises(ConfigurationError, match="collection"):
        SearchManager(collection=3)
