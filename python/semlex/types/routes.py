"""Kinds of questions, by which searches are made. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RouteKind = Literal["factual", "analytical", "exploratory"]
RouteBy = Literal["rules", "chat"]


@dataclass(frozen=True, slots=True)
class Route:
    """Which kind of question a search was made for, and why; as text, a line for people.

    Attributes:
        kind: ``factual``: one place answers it. ``analytical``: several places together do. ``exploratory``: what there
            is on a subject is wanted.
        by: Who decided: ``rules``, or ``chat`` for the language model.
        reason: Why, in one line.
        warning: Why rules decided although the language model was to; None where nothing went wrong.
    """

    kind: RouteKind
    by: RouteBy
    reason: str
    warning: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}, by {'rules' if self.by == 'rules' else 'the language model'}: {self.reason}"
