"""The texts of scenarios: of few words, so that every search finds several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.types.documents import Document

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

WORDS = ("cat", "dog", "ship", "running", "the", "key", "rotation", "vault", "banana", "yellow", "fruit", "Straße")


def draw_text(chance: random.Random, longest: int = 12) -> str:
    """Return a text of a few words."""
    return " ".join(chance.choices(WORDS, k=chance.randint(2, longest)))


def documents(texts: Mapping[str, str]) -> list[Document]:
    """Return texts (id -> text) as documents."""
    return [Document(text, id=one) for one, text in texts.items()]
