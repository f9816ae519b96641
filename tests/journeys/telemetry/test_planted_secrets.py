"""Secrets planted in every place, over a matrix of failures: none in a log line, a problem, a figure or a span."""

from __future__ import annotations

import io
import logging
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex import Client, Document
from semlex.chat import OpenAIChatModel
from semlex.embedding.remote import OpenAIEmbedder
from semlex.errors import SemlexError
from semlex.models import http_client
from semlex.reranking.remote import CohereReranker
from semlex.server.observability import JsonLines, TextLines
from semlex.server.tokens import TokenFile
from tests.support.chat_servers import answer_text, chat_server
from tests.support.http_server import COLLECTION, bearer, in_process
from tests.support.model_servers import ModelServerDouble, cut, echo, openai_embeddings, raw
from tests.support.spans import recorded

PASSWORD, KEY = "planted-password-7f3a", "planted-key-91c4"
# Words, so that they are found and scored like others.
TEXT, QUESTION = "plantedtext5e0b", "plantedquestion2d68"
MODEL_FAULTS = [echo(400), echo(401), echo(500), cut, raw(QUESTION.encode()), raw(f'{{"error": "{TEXT}"}}'.encode())]


# Those that a server's process has; the client of a test logs what it asks.
LOGGERS = ("semlex", "uvicorn", "psycopg", "asyncio", "opentelemetry")


@contextmanager
def logged():
    """Every line, as the server writes them in both forms."""
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name in LOGGERS:
            logger = logging.getLogger(name)
            handlers = []
            for formatter in (JsonLines(), TextLines()):
                handlers.append(logging.StreamHandler(written))
                handlers[-1].setFormatter(formatter)
            patch.setattr(logger, "handlers", handlers)
            patch.setattr(logger, "level", logging.DEBUG)
            logger.manager._clear_cache()  # of which levels are on
        yield written
    logging.getLogger().manager._clear_cache()


class Place:
    """A server with secrets in all places, and what it has said."""

    def __init__(self, client, served, secret, models, chat):
        self.client, self.served, self.models, self.chat = client, served, models, chat
        self.secrets = (PASSWORD, KEY, secret)
        self.problems, self._said = [], ""

    async def ask_all(self):
        """Requests of every kind, with and without the token."""
        found, headers = {"query": QUESTION}, bearer(self.secrets[-1])
        for path, body, sent in (
            ("search", found | {"mode": "vector"}, headers),
            ("search", found, headers),
            ("search/many", {"queries": [QUESTION, "key"]}, headers),
            ("facets", {"fields": ["@source"], "query": QUESTION}, headers),
            ("context", {"question": QUESTION}, headers),
            ("answer", {"question": TEXT}, headers),
            ("why", {"document": "d0", "question": QUESTION}, headers),
            ("documents", {"documents": [{"content": f"{TEXT} more", "id": "new"}]}, headers),
            ("embeddings", {"input": [TEXT, QUESTION]}, headers),
            ("embeddings", {"input": TEXT, "model": QUESTION}, headers),
            ("rerank", {"query": QUESTION, "documents": [TEXT]}, headers),
            ("search", found | {"filters": f"{TEXT} ="}, headers),
            ("search", found | {"collection": "elsewhere"}, headers),
            (QUESTION, {}, headers),
            ("search", found, bearer(TEXT)),
            ("search", found, {}),
        ):
            answer = await self.served.post(f"/v1/{path}", body, headers=sent)
            if answer.status_code >= 400:
                self.problems.append(answer.status_code)
                self._said += answer.text
            for secret in self.secrets:
                assert secret not in answer.text, path
                assert secret not in str(answer.headers), path
        for path in ("/metrics", "/readyz"):
            self._said += (await self.served.http.get(path, headers=headers)).text

    def check(self, lines, spans):
        for where, text in (("bodies", self._said), ("log", lines), ("spans", spans.text())):
            assert text, where
            for secret in (*self.secrets, TEXT, QUESTION):
                assert secret not in text, (where, text[max(0, text.find(secret) - 200) : text.find(secret)])


@asynccontextmanager
async def place(url, folder):
    tokens = TokenFile(folder / "tokens.json")
    secret = tokens.add("planted", "admin")
    say = answer_text([("It is so.", [(1, TEXT)])])
    with ModelServerDouble(openai_embeddings()) as models, chat_server(lambda _request: say) as chat:
        embedder = OpenAIEmbedder("planted", models.url, api_key=KEY)
        reranker = CohereReranker("planted", models.url, api_key=KEY, attempts=1)
        chatting = OpenAIChatModel("planted", chat.url, api_key=KEY, attempts=1)
        async with AsyncExitStack() as closing:
            for model in (embedder, reranker, chatting):
                closing.callback(model.close)
            client = Client(
                make_conninfo(url, password=PASSWORD),
                embedding_model=embedder,
                reranker_model=reranker,
                use_reranking=True,
                chat_model=chatting,
            )
            await closing.enter_async_context(client)
            await client.collection(COLLECTION).add_documents([Document(f"A key of {TEXT}.", id="d0")])
            async with in_process(client, token_file=tokens.path, rate=0) as served:
                yield Place(client, served, secret, models, chat)


def nothing(_place, _url, _patch):
    """Only what the requests themselves have wrong."""


def models_fail(where, _url, _patch):
    where.models.then(*MODEL_FAULTS * 40)
    where.chat.then(*MODEL_FAULTS * 10)


def the_server_refuses_rows(_place, url, _patch):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE semlex.{COLLECTION}_chunk ADD CHECK (chunk_id IS NULL) NOT VALID")


def tables_are_gone(_place, url, _patch):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE semlex.{COLLECTION}_chunk CASCADE")


def the_database_is_gone(place, url, _patch):
    place.client._resources.database._pool.timeout = 0.1  # expires
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])


def all_is_broken(_place, _url, patch):
    """What nobody expects: an error that quotes everything."""

    async def broken(*_, **__):
        try:
            raise ValueError(PASSWORD, KEY)  # noqa: TRY301
        except ValueError as error:
            raise RuntimeError(TEXT, QUESTION) from error

    for name in ("search", "search_many", "context", "answer", "why", "add_documents"):
        patch.setattr(f"semlex.retriever.collection.Collection.{name}", broken)
    patch.setattr("semlex.retriever.fields.Fields.facets", broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fail", "seen"),
    [
        (nothing, {401, 404, 422}),
        (models_fail, {502}),
        (the_server_refuses_rows, {503}),
        (tables_are_gone, {404}),
        (the_database_is_gone, {503}),
        (all_is_broken, {500}),
    ],
)
async def test_planted_secrets_are_nowhere(database_url, tmp_path, monkeypatch, fail, seen):
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)
    with logged() as lines, recorded() as spans, monkeypatch.context() as patch:
        async with place(database_url, tmp_path) as where:
            fail(where, database_url, patch)
            await where.ask_all()
            assert seen <= set(where.problems), sorted(set(where.problems))
            where.check(lines.getvalue(), spans)


async def test_a_server_that_cannot_be_reached_hears_no_password_repeated():
    with logged() as lines, recorded() as spans:
        client = Client(f"postgresql://ann:{PASSWORD}@127.0.0.1:1/handbook", embedding_model="none")
        with pytest.raises(SemlexError) as refused:
            await client.initialize()
    assert PASSWORD not in f"{refused.value!r}{refused.value}{client!r}{lines.getvalue()}{spans.text()}"
