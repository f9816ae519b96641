"""Django: rows of followed tables as model instances in the order of a search, and tables followed by migrations."""

from __future__ import annotations

from semlex.errors import MissingExtraError

try:
    import django  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    if error.name != "django":
        raise
    raise MissingExtraError("django", "django", "semlex.integrations.django") from None

from semlex.integrations.django.operations import FollowTable
from semlex.integrations.django.ranked_rows import RankedRows, SearchManager

__all__ = ["FollowTable", "RankedRows", "SearchManager"]
