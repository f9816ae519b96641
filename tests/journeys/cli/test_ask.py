"""``semlex ask``: answers in the terminal and as JSON, with a model and without."""

from __future__ import annotations

import json

import pytest

from semlex.models import http_client
from tests.support.chat_servers import answer_text, chat_server
from tests.support.model_servers import KEY, status
from tests.support.shell import Shell

QUESTION = ("ask", "how", "often", "is", "a", "key", "rotated")
ANSWER = answer_text(
    [
        ("A key is rotated \x1b[2Jevery ninety days.", [(1, "Rotate a key every ninety days")]),
        ("Keys are stored on Mars.", [(1, "stored on Mars"), (9, "Mars")]),
    ]
)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)


@pytest.fixture
def asked(shell: Shell) -> Shell:
    shell("index", "docs", "--model", "none")
    return shell


def test_without_a_model(asked: Shell) -> None:
    done = asked(*QUESTION)
    assert "Rotate a key every ninety days. [1]" in done.stdout
    assert "keys.md:5" in done.stdout
    assert "passages of the documents, not an answer" in done.stderr
    assert "documented" not in done.stderr


def test_quotes_from_one_place_are_one_line(asked: Shell) -> None:
    text = "A zebra has stripes. Each zebra has its own stripes. Zebra foals have brown stripes."
    (asked.folder / "docs" / "zebra.md").write_text(text, encoding="utf-8")
    asked("index", "docs")
    done = asked("ask", "what stripes has a zebra?")
    assert "".join(done.stdout.splitlines()[:2]).count("[1]") > 1
    assert done.stdout.count("zebra.md:1") == 1


def test_no_answer(asked: Shell) -> None:
    assert "no answer in these documents: nothing was found" in asked("ask", "zebras").stdout
    answer = json.loads(asked("ask", "zebras", "--json").stdout)
    assert (answer["refused"], answer["text"], answer["sentences"]) == (
        "no answer in these documents: nothing was found",
        "",
        [],
    )
    assert (answer["kind"], answer["documented"]) == ("passages", None)


@pytest.mark.parametrize("stream", [True, False])
def test_a_model_that_quotes_wrongly(asked: Shell, stream: bool) -> None:
    with chat_server(lambda _: ANSWER) as double:
        options = ("--chat-model", f"{double.url}/v1#small", *(["--stream"] if stream else []))
        done = asked(*QUESTION, *options)
        objects = [json.loads(line) for line in asked(*QUESTION, *options, "--json").stdout.splitlines()]
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


def test_a_model_that_fails_is_told_and_replaced(asked: Shell) -> None:
    asked.environment["SEMLEX_CHAT_API_KEY"] = KEY
    with chat_server(lambda _: "", [status(401)] * 9) as double:
        done = asked(*QUESTION, "--chat-model", f"{double.url}/v1#small")
    assert "Rotate a key every ninety days. [1]" in done.stdout
    assert "note: the language model failed" in done.stderr
    assert KEY not in done.stdout + done.stderr


def test_a_folder_that_is_not_trusted_names_no_model(asked: Shell) -> None:
    (asked.folder / "semlex.toml").write_text('chat_model = "openai:gpt"\n', encoding="utf-8")
    done = asked(*QUESTION, code=2)
    assert "chat_model sets where texts or data go" in done.stderr


def test_wrong_options(asked: Shell) -> None:
    assert "--min-coverage" in asked(*QUESTION, "--min-coverage", "3", code=2).stderr
    assert "openai:MODEL" in asked(*QUESTION, "--chat-model", "gpt-5", code=2).stderr


def test_what_stands_around_hits(asked: Shell) -> None:
    """The options of a context are those of the library; 0 stands for never."""
    for command in ("ask", "context"):
        (plain,) = asked.objects(command, *QUESTION[1:])
        (given,) = asked.objects(command, *QUESTION[1:], "--parents", "--sections", "0", "--near-duplicates", "0")
        (narrow,) = asked.objects(command, *QUESTION[1:], "--sections", "0.5", "--near-duplicates", "0.9")
        assert plain.keys() == given.keys() == narrow.keys()
        assert "sections" in asked(command, *QUESTION[1:], "--sections", "2", code=2).stderr
        assert "--near-duplicates" in asked(command, *QUESTION[1:], "--near-duplicates", "nan", code=2).stderr
    answer = asked("ask", *QUESTION[1:], "--sections", "0.5")
    assert "Rotate a key every ninety days. [1]" in answer.stdout
