"""Django: model instances in the order of a search over followed tables, and migrations that follow tables."""

from __future__ import annotations

from semlex.errors import needing

with needing("django", "django", "django", __name__):
    import django  # noqa: F401 - whether it is there

from semlex.integrations.django.operations import FollowTable
from semlex.integrations.django.ranked_rows import RankedRows, SearchManager

__all__ = ["FollowTable", "RankedRows", "SearchManager"]
