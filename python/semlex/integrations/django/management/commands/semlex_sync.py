"""The command ``manage.py semlex_sync``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError

from semlex.errors import SemlexError
from semlex.integrations.django.ranked_rows import SearchManager

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    """Brings the collections of all search managers in step with their tables."""

    help = "Brings the collections of all search managers in step with the tables that they follow."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("models", nargs="*", metavar="APP.MODEL", help="Only these models; default: all.")
        parser.add_argument("--compare", action="store_true", help="Compare all rows.")
        parser.add_argument(
            "--allow-empty",
            action="store_true",
            help="Delete all documents of a table if none of its stored rows exists any more.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Compare and count only.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Sync the tables, one after another."""
        wanted = {label.lower() for label in options["models"]}
        managers = [
            (model._meta.label, manager)  # noqa: SLF001 - Django's documented interface
            for model in apps.get_models()
            for manager in model._meta.managers  # noqa: SLF001
            if isinstance(manager, SearchManager)
        ]
        known = {label.lower() for label, _ in managers}
        if unknown := wanted - known:
            listed = ", ".join(sorted(known)) or "none"
            raise CommandError(f"no SearchManager in: {', '.join(sorted(unknown))}; models with one: {listed}")
        failed = False
        for label, manager in managers:
            if wanted and label.lower() not in wanted:
                continue
            try:
                [done] = manager.collection.tables.sync(
                    manager.table_name,
                    compare=options["compare"],
                    allow_empty=options["allow_empty"],
                    dry_run=options["dry_run"],
                )
            except SemlexError as error:
                failed = True
                self.stderr.write(f"{label}: {error}")
                continue
            counts = ("added", "changed", "refreshed", "deleted", "failed")
            told = ", ".join(f"{getattr(done, name):,} {name}" for name in counts)
            if options["verbosity"]:
                self.stdout.write(f"{label}: {told}")
        if failed:
            raise CommandError("some tables were not synced, for the reasons above")
