"""Checks of the questions that were asked, where they are logged."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from semlex.diagnostics.check import Check
from semlex.store.postgres.settings import server_time
from semlex.store.query_log import count_since

if TYPE_CHECKING:
    from semlex.diagnostics.check import Subject

DAYS = 30
# A few questions that find nothing are no sign of anything.
MIN_QUESTIONS, MAX_SHARE = 10, 0.2


async def check_questions(subject: Subject) -> None:
    """Questions without hits."""
    since = await server_time(subject.connection) - timedelta(days=DAYS)
    asked, nothing = await count_since(subject.connection, subject.collection.names, since)
    if asked >= MIN_QUESTIONS and nothing > MAX_SHARE * asked:
        subject.find(
            "queries_without_hits",
            "hint",
            f"was asked {asked:,} questions in {DAYS} days, of which {nothing:,} found nothing",
            "see which, and what the documents lack",
            subject.command("queries"),
        )


CHECKS = (Check("questions without hits", check_questions),)
