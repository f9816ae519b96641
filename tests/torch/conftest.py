"""What tests of models with torch share."""

from __future__ import annotations

import weakref

import pytest

from semlex.models.local import shared_weights, transformer
from semlex.models.local.forward import ReferenceForward
from tests.support.watched_model import Watched


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models may run in the watched form, and nothing is remembered of those before."""
    monkeypatch.setattr(shared_weights, "_outcomes", {})
    monkeypatch.setattr(shared_weights, "_shared", weakref.WeakValueDictionary())
    monkeypatch.setattr(transformer, "_budgets", {})
    for module in (shared_weights, transformer):
        monkeypatch.setattr(module, "FORWARDS", {"watched": Watched, "reference": ReferenceForward})
    monkeypatch.setattr(Watched, "look", staticmethod(lambda lengths: None))
