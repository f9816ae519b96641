"""The application, which brings the command ``semlex_sync``."""

from __future__ import annotations

from django.apps import AppConfig


class SemlexConfig(AppConfig):
    """The application of semlex; it has no models."""

    name = "semlex.integrations.django"
    label = "semlex"
    verbose_name = "semlex"
