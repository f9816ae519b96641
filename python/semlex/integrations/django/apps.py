"""The application, which brings the command ``semlex_sync``; Django looks for it in a module of this name."""

from __future__ import annotations

from django.apps import AppConfig


class SemlexConfig(AppConfig):
    """The application of semlex; it has no models."""

    name = "semlex.integrations.django"
    label = "semlex"
    verbose_name = "semlex"
