"""Models of a shop."""

import uuid

from django.db import models

from semlex.integrations.django import SearchManager


class Author(models.Model):
    name = models.TextField()


class Article(models.Model):
    title = models.TextField()
    body = models.TextField(db_column="text")
    tenant = models.IntegerField(default=0)
    status = models.TextField(default="public")
    author = models.ForeignKey(Author, null=True, on_delete=models.CASCADE)

    objects = models.Manager()
    search = SearchManager(collection="shelf")


class Page(models.Model):
    key = models.UUIDField(primary_key=True, default=uuid.uuid4)
    text = models.TextField()

    objects = models.Manager()
    search = SearchManager(collection="shelf", name="pages")


class Line(models.Model):
    pk = models.CompositePrimaryKey("page", "number")
    page = models.IntegerField()
    number = models.IntegerField()
    text = models.TextField()

    objects = models.Manager()
    search = SearchManager(collection="shelf")
