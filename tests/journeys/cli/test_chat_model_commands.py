"""``semlex ask``, ``semlex maintain enrich`` and ``--enrich``: what chat models are sent, when, and what is shown."""

import json

import pytest

from semlex.cli.commands import maintain as enrich
from semlex.models import http_client
from tests.support.chat_servers import answer_text, chat_server
from tests.support.line_models import asked_passage, line_about
from tests.support.model_servers import KEY, status

QUESTION = ("how", "often", "is", "a", "key", "rotated")
ASK = ("ask", *QUESTION)
EXCERPT = "Rotate a key every ninety days. [1]"


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)


@pytest.fixture
def indexed(shell):
    shell("index", "docs", "--model", "none")
    return shell


def model(double):
    return f"{double.url}/v1#small"


# --- answers --------------------------------------------------------------------------------------------------------


def test_without_a_model_passages_are_shown(indexed):
    done = indexed(*ASK)
    assert EXCERPT in done.stdout
    assert "keys.md:5" in done.stdout
    assert "passages of the documents, not an answer" in done.stderr
    assert "documented" not in done.stderr
    refused = "no answer in these documents: nothing was found"
    assert refused in indexed("ask", "zebras").stdout
    (answer,) = indexed.objects("ask", "zebras")
    assert (answer["refused"], answer["text"], answer["sentences"]) == (refused, "", [])
    assert (answer["kind"], answer["documented"]) == ("passages", None)


def test_quotes_from_one_place_are_one_line(indexed):
    text = "A zebra has stripes. Each zebra has its own stripes. Zebra foals have brown stripes."
    (indexed.folder / "docs" / "zebra.md").write_text(text, encoding="utf-8")
    indexed("index", "docs")
    done = indexed("ask", "what stripes has a zebra?")
    assert "".join(done.stdout.splitlines()[:2]).count("[1]") > 1
    assert done.stdout.count("zebra.md:1") == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_model_that_quotes_wrongly(indexed, stream):
    supported = "A key is rotated \x1b[2Jevery ninety days.", [(1, "Rotate a key every ninety days")]
    answer = answer_text([supported, ("Keys are stored on Mars.", [(1, "stored on Mars"), (9, "Mars")])])
    with chat_server(lambda _: answer) as double:
        command = (*ASK, "--chat-model", model(double), *(["--stream"] if stream else []))
        done = indexed(*command)
        objects = [json.loads(line) for line in indexed(*command, "--json").stdout.splitlines()]
    first, second, *_ = done.stdout.splitlines()
    assert first == "A key is rotated \\x1b[2Jevery ninety days. [1]"
    assert second == "Keys are stored on Mars. [1][9]  (unsupported)"
    assert "(not found)" in done.stdout or "(altered)" in done.stdout
    assert "(unknown source)" in done.stdout
    assert "11 tokens read, 7 written" in done.stderr
    assert "documented 0.33" in done.stderr
    assert [one.get("type") for one in objects] == (["sentence", "sentence", "answer"] if stream else [None])
    assert objects[-1]["unsupported"] == ["Keys are stored on Mars."]
    if stream:
        assert [one["is_supported"] for one in objects[:2]] == [True, False]


def test_a_model_that_fails_is_told_and_replaced(indexed):
    indexed.environment["SEMLEX_CHAT_API_KEY"] = KEY
    with chat_server(lambda _: "", [status(401)] * 9) as double:
        done = indexed(*ASK, "--chat-model", model(double))
    assert EXCERPT in done.stdout
    assert "note: the language model failed" in done.stderr
    assert KEY not in done.stdout + done.stderr


def test_what_stands_around_hits(indexed):
    """The options of a context are those of the library; 0 stands for never."""
    for command in (ASK, ("context", *QUESTION)):
        (plain,) = indexed.objects(*command)
        (given,) = indexed.objects(*command, "--parents", "--sections", "0", "--near-duplicates", "0")
        (narrow,) = indexed.objects(*command, "--sections", "0.5", "--near-duplicates", "0.9")
        assert plain.keys() == given.keys() == narrow.keys()
        assert "sections" in indexed(*command, "--sections", "2", code=2).stderr
        assert "--near-duplicates" in indexed(*command, "--near-duplicates", "nan", code=2).stderr
    assert EXCERPT in indexed(*ASK, "--sections", "0.5").stdout
    assert "--min-coverage" in indexed(*ASK, "--min-coverage", "3", code=2).stderr
    assert "openai:MODEL" in indexed(*ASK, "--chat-model", "gpt-5", code=2).stderr


def test_a_folder_that_is_not_trusted_names_no_model(indexed):
    file = indexed.folder / "semlex.toml"
    file.write_text('chat_model = "openai:gpt"\n', encoding="utf-8")
    assert "chat_model sets where texts or data go" in indexed(*ASK, code=2).stderr
    file.write_text('enrichment_model = "openai:spy"\n', encoding="utf-8")
    assert "is not trusted" in indexed("index", "docs", "--yes", code=2).stderr


# --- descriptions of chunks -----------------------------------------------------------------------------------------


def describe(request):
    _, text = asked_passage(request.body["messages"][1]["content"])
    return json.dumps({"line": line_about(text)})


def described(shell):
    return shell.objects("search", "zyxwv")[-1]["hits"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["index", "sync"])
def test_files_with_descriptions(shell, command):
    shell.environment["SEMLEX_CHAT_API_KEY"] = KEY
    with chat_server(describe) as double:
        done = shell(command, "docs", "--model", "none", "--enrich", model(double), "--yes")
        assert "2 of 2 chunks described by small@127.0.0.1" in done.stderr
        assert "tokens read" in done.stderr
        assert len(double.requests) == 3  # one about a text of semlex's own
        assert described(shell) == 2
        again = json.loads(shell(command, "docs", "--enrich", model(double), "--yes", "--json").stdout)
        assert (again.get("run") or again)["enrichment"]["chunks"] == 0
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["index docs", "sync docs", "maintain enrich"])
def test_chunks_without_their_description_end_with_a_code(shell, command):
    def describe_some(request):
        about_fruit = "banana" in request.body["messages"][1]["content"]
        return json.dumps({"line": ""}) if about_fruit else describe(request)

    if command == "maintain enrich":
        shell("index", "docs", "--model", "none")
    arguments = (*command.split(), "--model", "none", "--yes", "--enrich")
    with chat_server(describe_some) as double:
        report = json.loads(shell(*arguments, model(double), "--json", code=5).stdout)
        report = report if command == "maintain enrich" else (report.get("run") or report)["enrichment"]
        assert (report["chunks"], report["failed"]) == (2, 1)
    with chat_server(describe) as double:
        shell(*arguments, model(double))


def test_changed_files_say_that_descriptions_stay(shell):
    with chat_server(describe) as double:
        shell("index", "docs", "--model", "none", "--chunk-tokens", "16", "--enrich", model(double), "--yes")
    page = shell.folder / "docs" / "keys.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n## More\n\nMore words about this.\n", encoding="utf-8")
    done = shell("index", "docs", "--model", "none")
    assert "the stored description; new chunks have none: semlex maintain enrich" in done.stderr


@pytest.mark.parametrize("agrees", [True, False])
def test_nothing_is_sent_before_somebody_agrees(shell, monkeypatch, agrees):
    asked = []
    with chat_server(describe) as double:
        for arguments in (("index", "docs"), ("sync", "docs"), ("maintain", "enrich")):
            refused = shell(*arguments, "--enrich", model(double), "--model", "none", code=2)
            assert "confirm with --yes" in refused.stderr  # nobody can be asked
        assert shell.objects("collections") == []
        assert double.requests == []
        monkeypatch.setattr(enrich, "_can_ask", lambda: True)
        monkeypatch.setattr(enrich.typer, "confirm", lambda question, **_: asked.append(question) or agrees)
        done = shell("index", "docs", "--model", "none", "--enrich", model(double))
        assert "descriptions of 2 chunks by small@" in done.stderr
        assert "tokens are sent, at most 200 come back" in done.stderr
        assert "2 chunks written" in done.stderr
        assert bool(double.requests) == agrees
        assert described(shell) == (2 if agrees else 0)
        done = shell("maintain", "enrich", "--enrich", model(double), "--model", "none")
        assert ("every chunk has its description" in done.stderr) == agrees
        assert len(asked) == (1 if agrees else 2)


def test_stored_chunks_are_described_later(indexed):
    enriching = ("maintain", "enrich", "--model", "none")
    refused = indexed("maintain", "enrich", "--yes", code=2)
    assert "name the language model that describes chunks" in refused.stderr
    with chat_server(describe) as double:
        indexed.environment["SEMLEX_ENRICHMENT_MODEL"] = model(double)
        report = json.loads(indexed(*enriching, "--dry-run", "--json").stdout)
        assert report["estimate"]["chunks"] == 2
        assert "about" in indexed(*enriching, "--dry-run").stderr
        assert double.requests == []
        report = json.loads(indexed(*enriching, "--yes", "--concurrency", "2", "--json").stdout)
        assert (report["written"], report["failed"]) == (2, 0)
        requests = len(double.requests)
        assert json.loads(indexed(*enriching, "--yes", "--json").stdout)["chunks"] == 0
        assert len(double.requests) == requests
        (indexed.folder / "docs" / "another.txt").write_text("A vault.", encoding="utf-8")
        double.then(status(401))
        indexed("index", "docs", "--model", "none", "--enrich", "none")  # the setting is not asked
        assert "no descriptions are written: 127.0.0.1" in indexed(*enriching, "--yes", code=4).stderr
        assert "use no language model" in indexed("sync", "docs", "--watch", code=2).stderr


def test_a_name_that_is_none_is_told_before_anybody_is_asked(indexed, monkeypatch):
    for can_ask in (False, True):
        monkeypatch.setattr(enrich, "_can_ask", lambda can_ask=can_ask: can_ask)
        monkeypatch.setattr(enrich.typer, "confirm", lambda *_, **__: pytest.fail("asked"))
        for command in (("index", "docs"), ("sync", "docs"), ("maintain", "enrich")):
            refused = indexed(*command, "--enrich", "blah", "--model", "none", code=2)
            assert "the language model must be" in refused.stderr
            assert "tokens are sent" not in refused.stderr
