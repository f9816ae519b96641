"""``semlex maintain enrich`` and ``--enrich``: the cost is reported first; nothing is sent before somebody agrees."""

from __future__ import annotations

import json

import pytest

from semlex.cli.commands import maintain as enrich
from semlex.models import http_client
from tests.support.chat_servers import chat_server
from tests.support.line_models import asked_passage, line_about
from tests.support.model_servers import KEY, ModelServerDouble, Request, status
from tests.support.shell import Shell


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)


def say(request: Request) -> str:
    _, text = asked_passage(request.body["messages"][1]["content"])
    return json.dumps({"line": line_about(text)})


def name(double: ModelServerDouble) -> str:
    return f"{double.url}/v1#small"


def found(shell: Shell) -> int:
    return json.loads(shell("search", "zyxwv", "--json").stdout.splitlines()[-1])["hits"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["index", "sync"])
def test_files_with_lines(shell: Shell, command: str) -> None:
    shell.environment["SEMLEX_CHAT_API_KEY"] = KEY
    with chat_server(say) as double:
        done = shell(command, "docs", "--model", "none", "--enrich", name(double), "--yes")
        assert "2 of 2 chunks described by small@127.0.0.1" in done.stderr
        assert "tokens read" in done.stderr
        assert len(double.requests) == 3  # one about a text of semlex's own
        assert found(shell) == 2
        again = json.loads(shell(command, "docs", "--enrich", name(double), "--yes", "--json").stdout)
        assert (again.get("run") or again)["enrichment"]["chunks"] == 0
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["index", "sync", "maintain enrich"])
def test_chunks_without_their_line_end_with_a_code(shell: Shell, command: str) -> None:
    def say_some(request: Request) -> str:
        return json.dumps({"line": ""}) if "banana" in request.body["messages"][1]["content"] else say(request)

    if command == "maintain enrich":
        shell("index", "docs", "--model", "none")
    folder = () if command == "maintain enrich" else ("docs",)
    with chat_server(say_some) as double:
        arguments = (*command.split(), *folder, "--model", "none", "--enrich", name(double), "--yes", "--json")
        report = json.loads(shell(*arguments, code=5).stdout)
        lines = report if command == "maintain enrich" else (report.get("run") or report)["enrichment"]
        assert (lines["chunks"], lines["failed"]) == (2, 1)
    with chat_server(say) as double:
        shell(*command.split(), *folder, "--model", "none", "--enrich", name(double), "--yes")


def test_changed_files_say_that_lines_stay(shell: Shell) -> None:
    with chat_server(say) as double:
        shell("index", "docs", "--model", "none", "--chunk-tokens", "16", "--enrich", name(double), "--yes")
    page = shell.folder / "docs" / "keys.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n## More\n\nMore words about this.\n", encoding="utf-8")
    done = shell("index", "docs", "--model", "none")
    assert "the stored description; new chunks have none: semlex maintain enrich" in done.stderr


@pytest.mark.parametrize("agrees", [True, False])
def test_the_question(shell: Shell, monkeypatch: pytest.MonkeyPatch, agrees: bool) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return agrees

    monkeypatch.setattr(enrich, "_can_ask", lambda: True)
    monkeypatch.setattr(enrich.typer, "confirm", confirm)
    with chat_server(say) as double:
        done = shell("index", "docs", "--model", "none", "--enrich", name(double))
        assert "descriptions of 2 chunks by small@" in done.stderr
        assert "tokens are sent, at most 200 come back" in done.stderr
        assert "2 chunks written" in done.stderr
        assert bool(double.requests) == agrees
        assert found(shell) == (2 if agrees else 0)
        done = shell("maintain", "enrich", "--enrich", name(double), "--model", "none")
        assert ("every chunk has its description" in done.stderr) == agrees
        assert len(asked) == (1 if agrees else 2)


def test_nobody_can_be_asked(shell: Shell) -> None:
    with chat_server(say) as double:
        for arguments in (("index", "docs"), ("sync", "docs"), ("maintain", "enrich")):
            refused = shell(*arguments, "--enrich", name(double), "--model", "none", code=2)
            assert "agree with --yes" in refused.stderr
        assert json.loads(shell("collections", "--json").stdout or "[]") == []
        assert double.requests == []


def test_the_command(shell: Shell) -> None:
    shell("index", "docs", "--model", "none")
    refused = shell("maintain", "enrich", "--yes", code=2)
    assert "name the language model that describes chunks" in refused.stderr
    with chat_server(say) as double:
        shell.environment["SEMLEX_ENRICHMENT_MODEL"] = name(double)
        report = json.loads(shell("maintain", "enrich", "--dry-run", "--model", "none", "--json").stdout)
        assert report["estimate"]["chunks"] == 2
        assert "about" in shell("maintain", "enrich", "--dry-run", "--model", "none").stderr
        assert double.requests == []
        report = json.loads(
            shell("maintain", "enrich", "--yes", "--model", "none", "--concurrency", "2", "--json").stdout
        )
        assert (report["written"], report["failed"]) == (2, 0)
        asked = len(double.requests)
        assert json.loads(shell("maintain", "enrich", "--yes", "--model", "none", "--json").stdout)["chunks"] == 0
        assert len(double.requests) == asked
        (shell.folder / "docs" / "another.txt").write_text("A vault.", encoding="utf-8")
        double.then(status(401))
        shell("index", "docs", "--model", "none", "--enrich", "none")  # the setting is not asked
        refused = shell("maintain", "enrich", "--yes", "--model", "none", code=4)
        assert "no descriptions are written: 127.0.0.1" in refused.stderr
        refused = shell("sync", "docs", "--watch", code=2)
        assert "use no language model" in refused.stderr


def test_a_folder_that_is_not_trusted_names_no_model(shell: Shell) -> None:
    (shell.folder / "semlex.toml").write_text('enrichment_model = "openai:spy"\n', encoding="utf-8")
    refused = shell("index", "docs", "--yes", code=2)
    assert "is not trusted" in refused.stderr


@pytest.mark.parametrize("command", [("index", "docs"), ("sync", "docs"), ("maintain", "enrich")])
def test_a_name_that_is_none_is_told_before_anybody_is_asked(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    shell("index", "docs", "--model", "none", "-c", "handbook")
    refused = shell(*command, "--enrich", "blah", "-c", "handbook", "--model", "none", code=2)
    assert "the language model must be" in refused.stderr
    monkeypatch.setattr(enrich, "_can_ask", lambda: True)
    monkeypatch.setattr(enrich.typer, "confirm", lambda *_, **__: pytest.fail("asked"))
    refused = shell(*command, "--enrich", "blah", "-c", "handbook", "--model", "none", code=2)
    assert "the language model must be" in refused.stderr
    assert "tokens are sent" not in refused.stderr
