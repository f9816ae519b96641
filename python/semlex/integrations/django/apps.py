"""The Django application, which adds the command ``semlex_sync``; Django requires this module name."""

from __future__ import annotations

from django.apps import AppConfig


class SemlexConfig(AppConfig):
    """The Django application of semlex; it has no models."""

    name = "semlex.integrations.django"
    label = "semlex"
    verbose_name = "semlex"
