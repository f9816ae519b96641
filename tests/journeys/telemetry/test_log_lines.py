"""What semlex logs and tells: lines in two forms, and no secret in a line, a problem, a figure or a span."""

import io
import json
import logging
import re
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import semlex
from semlex import Client, Document
from semlex.chat import OpenAIChatModel
from semlex.embedding.remote import OpenAIEmbedder
from semlex.errors import ConfigurationError, SemlexError
from semlex.models import http_client
from semlex.reranking.remote import CohereReranker
from semlex.server.observability import FIELDS, JsonLines, TextLines, log_to_stderr
from semlex.server.tokens import TokenFile
from semlex.testing import HashEmbedder
from tests.support.chat_servers import answer_text, chat_server
from tests.support.databases import execute
from tests.support.http_server import COLLECTION, bearer, in_process
from tests.support.model_servers import ModelServerDouble, cut, echo, openai_embeddings, raw
from tests.support.spans import recorded

# Those that a server's process has; the client of a test logs what it asks.
LOGGERS = ("semlex", "uvicorn", "psycopg", "asyncio", "opentelemetry")


@contextmanager
def logged(loggers=LOGGERS, level=logging.DEBUG, forms=(JsonLines, TextLines)):
    """Every line, as the server writes them, usually in both forms."""
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name in loggers:
            logger = logging.getLogger(name)
            patch.setattr(logger, "handlers", [logging.StreamHandler(written) for _ in forms])
            for handler, form in zip(logger.handlers, forms, strict=True):
                handler.setFormatter(form())
            patch.setattr(logger, "level", level)
            logger.manager._clear_cache()  # of which levels are on
        yield written
    logging.getLogger().manager._clear_cache()


def test_without_a_choice_of_the_program_nothing_is_written():
    # In a process of its own: in this one, commands may have chosen.
    program = "import logging, semlex; logging.getLogger('semlex').warning('x'); logging.warning('of the program')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "WARNING:root:of the program\n")


def test_every_logger_is_below_that_of_the_package():
    sources = [path.read_text(encoding="utf-8") for path in Path(semlex.__file__).parent.rglob("*.py")]
    found = [name for source in sources for name in re.findall(r"\bgetLogger\(([^)]*)\)", source)]
    others = {"__name__", '"psycopg"', "name"}  # `name` is that of a handler's own list
    assert {name for name in found if name not in others and not name.startswith('"semlex')} == set()
    assert len(found) > 20


@given(st.text(), st.text(), st.integers(), st.booleans())
def test_a_line_is_one_json_object_whatever_it_says(message, caller, status, has_failed):
    record = logging.LogRecord("semlex.server", logging.INFO, "x.py", 1, "%s", (message,), None)
    vars(record).update(caller=caller, status=status, hidden="secret")
    if has_failed:
        record.exc_info = (ValueError, ValueError("secretmessage"), None)
    line = JsonLines().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["caller"], read["status"], read["level"]) == (message, caller, status, "info")
    assert read["time"].endswith("Z")
    assert "secret" not in read
    assert (read.get("error") == ["ValueError"]) == has_failed


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_an_error_is_its_kind_and_place_and_not_its_message(formatter):
    try:
        try:
            raise KeyError("secretkey")  # noqa: TRY301
        except KeyError as error:
            raise RuntimeError("secrettext") from error
    except RuntimeError as error:
        given_error = (RuntimeError, error, error.__traceback__)
        record = logging.LogRecord("semlex", logging.ERROR, "x.py", 1, "failed", (), given_error)
    assert "secrettext" in logging.Formatter().format(record)  # as another handler's, which is kept in the record
    line = formatter.format(record)
    assert "secret" not in line
    assert "RuntimeError" in line
    assert "KeyError" in line
    assert __name__.rpartition(".")[2] in line


async def test_the_line_of_a_request_has_its_figures_and_no_text(database_url):
    with logged(["semlex"], logging.INFO, [JsonLines]) as lines:
        async with Client(database_url, HashEmbedder(), use_reranking=False) as client, in_process(client) as served:
            await client.collection(COLLECTION).add_documents([Document("secrettext of a key", id="d")])
            headers = {"X-Request-ID": "asked-by-me"}
            await served.http.post("/v1/search", json={"query": "secretquestion key"}, headers=headers)
            await served.http.post("/v1/search", json={"query": 5, "secretfield": 1})
            await served.http.get("/secretpath")
    read = [json.loads(line) for line in lines.getvalue().splitlines()]
    requests = [one for one in read if "route" in one]
    assert [(one["method"], one["route"], one["status"]) for one in requests] == [
        ("POST", "/v1/search", 200),
        ("POST", "/v1/search", 422),
        ("GET", "none", 404),
    ]
    assert requests[0]["request_id"] == "asked-by-me"
    assert all(set(FIELDS) < one.keys() and one["milliseconds"] >= 0 for one in requests)
    assert "secret" not in lines.getvalue()


def test_there_are_two_forms(monkeypatch):
    for name in ("semlex", "uvicorn.error"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", logger.level)
    kinds = []
    for form in ("text", "json"):
        log_to_stderr(form)
        [handler] = logging.getLogger("semlex").handlers
        kinds.append(type(handler.formatter))
    assert kinds == [TextLines, JsonLines]
    with pytest.raises(ConfigurationError, match="text or json; got 'xml'"):
        log_to_stderr("xml")


def test_timings_are_a_table_beside_the_answer(shell):
    shell("index", "docs")
    found = shell("search", "key", "--timings", "--json")
    lines = found.stderr.splitlines()
    assert json.loads(found.stdout.splitlines()[-1])["timings"].keys() == {line.split()[0] for line in lines}
    assert all(line.endswith(" ms") for line in lines)
    (shell.folder / "questions.txt").write_text("key\n", encoding="utf-8")
    assert "--timings" in shell("search", "--queries", "questions.txt", "--timings", code=2).stderr


# --- planted secrets -----------------------------------------------------------------------------------------------

PASSWORD, KEY = "planted-password-7f3a", "planted-key-91c4"
# Words, so that they are found and scored like others.
TEXT, QUESTION = "plantedtext5e0b", "plantedquestion2d68"
MODEL_FAULTS = [echo(400), echo(401), echo(500), cut, raw(QUESTION.encode()), raw(f'{{"error": "{TEXT}"}}'.encode())]


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
            used = {"embedding_model": embedder, "reranker_model": reranker, "chat_model": chatting}
            client = Client(make_conninfo(url, password=PASSWORD), use_reranking=True, **used)
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
    execute(url, f"ALTER TABLE semlex.{COLLECTION}_chunk ADD CHECK (chunk_id IS NULL) NOT VALID")


def tables_are_gone(_place, url, _patch):
    execute(url, f"DROP TABLE semlex.{COLLECTION}_chunk CASCADE")


def the_database_is_gone(place, url, _patch):
    place.client._resources.database._pool.timeout = 0.1  # expires
    name, elsewhere = conninfo_to_dict(url)["dbname"], make_conninfo(url, dbname="postgres")
    execute(elsewhere, sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
    execute(elsewhere, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])


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
