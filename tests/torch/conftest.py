"""What tests of models with torch share."""

import socket

import pytest

from semlex.models.files import find_model
from semlex.models.local import shared_weights, transformer
from semlex.models.local.forward import ReferenceForward
from tests.support import tiny_qwen3
from tests.support.watched_model import Watched


@pytest.fixture(scope="session")
def embedder_folder(tmp_path_factory):
    """A tiny embedding model of the Qwen3 architecture, which no test changes."""
    return tiny_qwen3.write_embedder(tmp_path_factory.mktemp("qwen3") / "embedder")


@pytest.fixture(scope="session")
def folder(embedder_folder):
    return find_model(str(embedder_folder))


@pytest.fixture
def no_network(monkeypatch):
    """No server can be asked."""

    def refuse(*_args, **_options):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def nothing_remembered(monkeypatch):
    """Neither weights nor outcomes of self-tests are left from other tests."""
    monkeypatch.setattr(shared_weights, "_outcomes", {})
    monkeypatch.setattr(transformer, "_budgets", {})
    others = shared_weights._shared.copy()
    shared_weights._shared.clear()  # the same one: a fork clears it
    yield
    shared_weights._shared.clear()
    shared_weights._shared.update(others)


@pytest.fixture
def watched(nothing_remembered, monkeypatch):
    """Models may run in the watched form."""
    for module in (shared_weights, transformer):
        monkeypatch.setattr(module, "FORWARDS", {"watched": Watched, "reference": ReferenceForward})
    monkeypatch.setattr(Watched, "look", staticmethod(lambda lengths: None))
