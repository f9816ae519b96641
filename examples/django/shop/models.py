"""The articles of the shop."""

from django.db import models

from semlex.integrations.django import SearchManager


class Article(models.Model):
    title = models.TextField()
    body = models.TextField()
    status = models.TextField(default="public")

    objects = models.Manager()
    search = SearchManager(collection="shop")
