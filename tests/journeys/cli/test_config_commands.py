"""``semlex config``: what it shows of every setting, what it writes, and no secret in any of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semlex.settings import files
from semlex.settings.sources import load_settings
from semlex.settings.table import SETTINGS, Settings
from tests.support.settings_forms import world
from tests.support.shell import Shell, run_here

SECRET = "hunter2"  # noqa: S105 - a text


@pytest.fixture
def folder() -> Iterator[Path]:
    with world() as made:
        yield made


def semlex(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_here(arguments, os.environ | {"COLUMNS": "400"})
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done


def rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in map(json.loads, semlex("config", "show", "--json").stdout.splitlines())}


def test_every_setting_is_shown_with_what_did_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.own_file().write_text("[search]\ntop_k = 9\n", encoding="utf-8")
    (folder / "semlex.toml").write_text("top_k = 8\n", encoding="utf-8")
    monkeypatch.setenv("RAG_TOP_K", "7")
    monkeypatch.setenv("SEMLEX_TOP_K", "6")
    monkeypatch.setenv("RAG_TOPK", "5")
    shown = rows()
    assert list(shown) == [*(setting.name for setting in SETTINGS), "SEMLEX_CONFIG"]
    own, there = str(files.own_file()), str(folder / "semlex.toml")
    assert shown["top_k"] == {
        "name": "top_k",
        "value": 6,
        "origin": "SEMLEX_TOP_K",
        "what": "number of results, 1 to 1,000",
        "overridden": [
            {"origin": "RAG_TOP_K", "value": "7", "differs": True},
            {"origin": there, "value": 8, "differs": True},
            {"origin": own, "value": 9, "differs": True},
        ],
    }
    # Of two variables it is told in any case, of files when that is asked for.
    told = semlex("config", "show")
    assert told.stdout.count("not used") == 1
    assert "not used: 7 (RAG_TOP_K)" in told.stdout
    assert "RAG_TOPK is not read; did you mean RAG_TOP_K?" in told.stderr
    assert semlex("config", "show", "-v").stdout.count("not used") == 3
    assert semlex("config").stdout == told.stdout
    assert semlex("config", "--json").stdout == semlex("config", "show", "--json").stdout
    monkeypatch.setenv("RAG_TOP_K", " 6 ")
    assert "not used" not in semlex("config", "show").stdout


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SEMLEX_DATABASE_URL", f"postgresql://user:{SECRET}@db.example/name"),
        ("RAG_DB_URL", f"postgresql://user:{SECRET}@db.example/name?sslpassword={SECRET}"),
        ("DATABASE_URL", f"host=db.example user=user password='{SECRET}'"),
        ("DATABASE_URL", f"postgresql://user:a@{SECRET}@db.example/name"),
        ("DATABASE_URL", f"user:{SECRET}@db.example"),
        ("SEMLEX_EMBEDDING_MODEL", f"http://user:{SECRET}@models.example/v1#m"),
        ("RAG_EMBEDDING_MODEL", f"http://models.example/v1?key={SECRET}#m"),
        ("SEMLEX_MODELS", f"openai:x,https://{SECRET}@models.example/v1#m"),
        ("SEMLEX_RERANKER_MODEL", f"llm+https://:{SECRET}@models.example/v1#m"),
        ("SEMLEX_CHAT_API_KEY", SECRET),
        ("PGPASSWORD", SECRET),
    ],
)
@pytest.mark.parametrize("overridden", [False, True])
def test_no_secret_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, overridden: bool
) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv(name, value)
    if overridden:
        (folder / "semlex.toml").write_text(f'database_url = "{value}"\n', encoding="utf-8")
        for variable in ("SEMLEX_DATABASE_URL", "SEMLEX_EMBEDDING_MODEL"):
            monkeypatch.setenv(variable, "postgresql://x" if variable != name else value)
    code = 0
    for arguments in (("config",), ("config", "show", "-v"), ("config", "show", "--json")):
        shown = semlex(*arguments, code=code)
        assert "models.example" in shown.stdout or "example/v1" not in value or overridden


def test_where_the_server_is_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSERVICE", "books")
    assert (rows()["database_url"]["value"], rows()["database_url"]["origin"]) == ("service=books", "PGSERVICE")
    # Where somebody has chosen the embedded server, libpq's variables choose no other.
    monkeypatch.setenv("SEMLEX_DATA_DIR", str(folder))
    assert rows()["database_url"]["value"] is None


def test_a_file_with_all_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = files.own_file()
    refused = semlex("config", "init", code=2).stderr
    assert f"{own} exists; --force replaces it" in refused
    assert own.read_text(encoding="utf-8") == ""
    assert str(own) in semlex("config", "init", "--force").stderr
    assert own.stat().st_mode & 0o077 == 0
    assert load_settings() == Settings()
    assert str(folder / "semlex.toml") in semlex("config", "init", "--folder").stderr
    assert semlex("config", "init", "--folder", code=2).stdout == ""
    assert load_settings() == Settings()
    own.unlink()
    own.parent.joinpath("below").mkdir()
    monkeypatch.setenv("SEMLEX_CONFIG", str(own.parent / "below" / "deeper" / "config.toml"))
    semlex("config", "init")
    assert load_settings() == Settings()
    monkeypatch.setenv("SEMLEX_CONFIG", str(own.parent / "settings.json"))
    assert "would be JSON" in semlex("config", "init", code=2).stderr
    monkeypatch.setenv("SEMLEX_CONFIG", str(own.parent / "trusted.json" / "config.toml"))
    (own.parent / "trusted.json").touch()
    assert "cannot be written" in semlex("config", "init", code=2).stderr


def test_both_files_of_a_folder_are_trusted_together(folder: Path) -> None:
    (folder / "semlex.toml").write_text('[database]\ndata_dir = "/srv/a"\n', encoding="utf-8")
    (folder / "pyproject.toml").write_text('[tool.semlex.search]\ncalibration = "c.json"\n', encoding="utf-8")
    refused = semlex("config", "show", code=2).stderr
    assert refused.count("is not trusted") == 2
    told = semlex("config", "trust").stderr
    assert "semlex.toml" in told
    assert "pyproject.toml" in told
    assert rows()["calibration"]["origin"] == str(folder / "pyproject.toml")
    semlex("config", "untrust")
    assert semlex("config", code=2).stderr.count("is not trusted") == 2


@pytest.mark.slow
def test_searches_begin_as_the_settings_say(shell: Shell) -> None:
    shell.environment |= {"SEMLEX_EMBEDDING_MODEL": "static"}
    (shell.folder / "semlex.toml").write_text("top_k = 2\n[search]\nfusion = 'rrf'\n", encoding="utf-8")
    (shell.folder / "notes").mkdir()
    for number in range(6):
        (shell.folder / "notes" / f"{number}.md").write_text(f"Lions sleep, says note {number}.\n", encoding="utf-8")
    shell("index", "notes", "-c", "notes")

    def found(*options: str) -> list[dict[str, Any]]:
        return [one for one in shell.objects("search", "lions", "-c", "notes", *options) if "id" in one]

    assert len(found()) == 2
    assert len(found("-k", "4")) == 4
    shell.environment["SEMLEX_MIN_SIMILARITY"] = "0.999"
    warned = shell("search", "lions", "-c", "notes").stderr
    assert "the default min_similarity=0.999 is ignored: the fusion 'rrf'" in warned
    assert found("--fusion", "score") == []
    assert len(found("--fusion", "score", "--min-similarity", "-1")) == 2
    # `why` explains the same search.
    told = shell("why", "0.md", "lions", "-c", "notes", "--fusion", "score").stdout
    assert "0.999" in told
    shell.environment["SEMLEX_VECTOR_INDEX"] = "ivfflat"
    assert "ivfflat" in shell("maintain", "create-index", "-c", "notes").stderr
    assert "ivfflat" in shell("status", "-c", "notes", "--json").stdout


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("address", ["http://user:hunter2/x@host/v1#m", "http://user:a@hunter2@host/v1#m"])
def test_a_password_with_signs_of_an_address_in_it_is_masked(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMLEX_CHAT_MODEL", address)
    assert rows()["chat_model"]["value"] == "http://***@host/v1#m"
    assert "http://***@host/v1#m" in semlex("config", "show").stdout


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("key", ["chat_model", "database_url", "top_k"])
def test_of_a_table_in_place_of_a_value_its_kind_is_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SEMLEX_{key.upper()}", "5")
    files.own_file().write_text(f'{key} = {{ key = "hunter2" }}\n', encoding="utf-8")
    assert "not used: a table" in semlex("config", "show", "-v").stdout
    assert [one["value"] for one in rows()[key]["overridden"]] == ["a table"]


@pytest.mark.usefixtures("folder")
def test_all_problems_are_told_beside_a_file_that_cannot_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMLEX_CONFIG", "own.toml")
    monkeypatch.setenv("SEMLEX_TOP_K", "0")
    told = semlex("config", "show", code=2).stderr
    assert "SEMLEX_CONFIG must be an absolute path" in told
    assert "SEMLEX_TOP_K must be between" in told
