"""What tests of models behind servers share."""

from contextlib import ExitStack, closing
from unittest.mock import AsyncMock

import pytest

from semlex.models import http_client
from semlex.models.http_client import ModelServer
from tests.support.embedding_servers import openai, openai_api
from tests.support.model_servers import KEY, ModelServerDouble, echoed
from tests.support.waiting import LIMIT


@pytest.fixture
def pauses(monkeypatch):
    """Waits between attempts are noted instead of waited."""
    noted = []
    monkeypatch.setattr(http_client, "_pause", AsyncMock(side_effect=lambda seconds, _clock: noted.append(seconds)))
    return noted


@pytest.fixture
def no_keys(monkeypatch):
    """No key of this machine takes part."""
    for account in ("OPENAI", "OPENROUTER", "GEMINI", "GOOGLE", "SEMLEX_EMBEDDING"):
        monkeypatch.delenv(f"{account}_API_KEY", raising=False)


@pytest.fixture
def double():
    """A server that answers with what it was asked."""
    with ModelServerDouble(echoed) as running:
        yield running


@pytest.fixture
def server(double, pauses):
    """The client of that server."""
    with closing(ModelServer(f"{double.url}/v1", api_key=KEY, timeout=LIMIT)) as opened:
        yield opened


@pytest.fixture
def embeddings():
    """A server of OpenAI's form."""
    with openai_api() as running:
        yield running


@pytest.fixture
def embedder_at():
    """Opens an embedder at a server, by the function for its form; all end with the test."""
    with ExitStack() as opened:
        yield lambda double, make=openai, **options: opened.enter_context(closing(make(double, **options)))
