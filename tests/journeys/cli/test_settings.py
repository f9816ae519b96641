"""Settings: their order, what a folder that was cloned may say, and how a mistake is told."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from semlex.errors import ConfigurationError
from semlex.settings import files
from semlex.settings.sources import load_settings, named_models
from semlex.settings.table import SETTINGS
from tests.support.shell import run_here

SECRET = "hunter2"  # noqa: S105 - a text
URL = f"postgresql://user:{SECRET}@db.example/name"
LEADING_AWAY = [
    f'database_url = "{URL}"',
    'data_dir = "/srv/data"',
    'embedding_model = "http://models.example/v1#m"',
    'embedding_model = "ollama:x"',
    'embedding_model = "./model"',
    'embedding_model = "../model"',
    'models = ["openai:x"]',
    'tokenizer = "model/tokenizer.json"',
    'reranker_model = "cohere"',
    'reranker_model = "auto"',
    'reranker_model = "tei+http://models.example"',
    'reranker_model = "cross-encoder:/model"',
    'chat_model = "openai:x"',
    'enrichment_model = "ollama:x"',
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a test; the own settings file is elsewhere, and not there yet."""
    for name in os.environ:
        if name.startswith(("SEMLEX_", "RAG_", "PG")) or name == "DATABASE_URL":
            monkeypatch.delenv(name)
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.toml").touch()
    monkeypatch.setenv("SEMLEX_CONFIG", str(own / "config.toml"))
    working = tmp_path / "cloned"
    working.mkdir()
    monkeypatch.chdir(working)
    return working


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def semlex(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_here(arguments, os.environ | {"COLUMNS": "400"})
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def test_every_setting_comes_from_every_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples: dict[str, object] = {"models": ["a/b"], "vector_storage": "halfvec", "use_reranking": False}
    samples |= {"read_from": "replica", "query_log": "text", "stop_words": False, "dimensions": 8, "keep_alive": 5.5}
    samples |= {"chunk_tokens": 100, "overlap_tokens": 7, "min_tokens": 9, "vector_index": "ivfflat"}
    samples |= {"hnsw_m": 8, "hnsw_ef_construction": 99, "top_k": 7, "mode": "keyword", "fusion": "rrf"}
    samples |= {"hybrid_weight": 0.25, "rrf_k": 20.5, "oversampling": 2, "min_similarity": -0.5, "route": "chat"}
    samples |= {"use_database": False, "rewrite": True, "device": "cpu", "partitions": 4}
    samples |= {"max_file_mib": 20, "max_document_mib": 200}
    for setting in SETTINGS:
        sample = samples.get(setting.name, "x")
        expected = setting.read(sample)
        as_argument = load_settings(**{setting.name: sample})
        write(files.own_file(), f"{setting.name} = {json.dumps(sample)}")
        as_file = load_settings()
        write(files.own_file())
        text = ",".join(sample) if isinstance(sample, list) else str(sample)
        monkeypatch.setenv(setting.variables[0], text)
        as_variable = load_settings()
        monkeypatch.setenv(setting.variables[0], "")
        assert [found.value(setting) for found in (as_argument, as_file, as_variable)] == [expected] * 3, setting.name
        assert load_settings().origins == {}


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "")
    assert load_settings().database_url is None
    monkeypatch.setenv("DATABASE_URL", URL)
    assert load_settings().database_url == URL
    assert load_settings().origins["database_url"] == "DATABASE_URL"
    assert SECRET not in repr(load_settings())
    monkeypatch.setenv("SEMLEX_DATABASE_URL", "postgresql://other")
    assert load_settings().database_url == "postgresql://other"


@pytest.mark.parametrize("line", LEADING_AWAY)
def test_a_folder_decides_nothing_about_places_until_it_is_trusted(folder: Path, line: str) -> None:
    file = write(folder / "semlex.toml", line)
    name = line.partition(" ")[0]
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    message = str(caught.value)
    assert f"{file}:1: {name}" in message
    assert f"semlex config trust {folder}" in message
    assert SECRET not in message
    files.trust(folder)
    assert load_settings().is_set(name)
    # What the trusted file says later is not what was trusted.
    write(file, line, "# changed")
    with pytest.raises(ConfigurationError, match="has changed since its folder was trusted"):
        load_settings()
    files.trust(folder)
    assert files.untrust(folder)
    assert not files.untrust(folder)
    with pytest.raises(ConfigurationError, match="is not trusted"):
        load_settings()
    # In the user's own file it needs no trust; an argument leaves the folder's value unused.
    file.unlink()
    write(files.own_file(), line)
    assert load_settings().is_set(name)


def test_what_needs_no_trust(folder: Path) -> None:
    write(folder / "semlex.toml", 'collection = "docs"', 'embedding_model = "Qwen/Qwen3-Embedding-0.6B"')
    assert load_settings().collection == "docs"
    write(folder / "semlex.toml", f'database_url = "{URL}"')
    assert load_settings(database_url="postgresql://mine").database_url == "postgresql://mine"


def test_trust_is_of_the_real_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = f'database_url = "{URL}"'
    write(folder / "semlex.toml", content)
    (tmp_path / "link").symlink_to(folder)
    files.trust(tmp_path / "link")
    assert load_settings().database_url == URL
    # Another folder with the same file, and one that lies below, are others.
    for other in (tmp_path / "copy", folder / "below"):
        other.mkdir()
        write(other / "semlex.toml", content)
        monkeypatch.chdir(other)
        with pytest.raises(ConfigurationError, match="is not trusted"):
            load_settings()


def test_nobody_else_reads_the_list_of_trusted_folders(folder: Path) -> None:
    write(folder / "semlex.toml")
    files.trust(folder)
    kept = files.own_file().with_name("trusted.json")
    assert kept.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in kept.parent.iterdir()) == ["config.toml", "trusted.json"]
    kept.write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="delete it, and trust the folders again"):
        files.trusted_files()


def test_the_working_directory_never_chooses_the_own_settings_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "config.toml", 'models = ["openai:x"]')
    content = write(folder / "semlex.toml", 'database_url = "postgresql://elsewhere/x"').read_bytes()
    trusted = {str(folder): hashlib.sha256(content).hexdigest()}
    write(folder / "trusted.json", json.dumps(trusted))
    for named in ("config.toml", "./semlex.toml", "~no-such-user/config.toml"):
        monkeypatch.setenv("SEMLEX_CONFIG", named)
        with pytest.raises(ConfigurationError, match="SEMLEX_CONFIG must be an absolute path") as caught:
            load_settings()
        assert str(caught.value).count("SEMLEX_CONFIG") == 1
        with pytest.raises(ConfigurationError, match="SEMLEX_CONFIG must be an absolute path"):
            named_models()


def test_a_missing_home_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="data_dir begins with the home of a user that does not exist"):
        load_settings(data_dir="~no-such-user/data")


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        (b"chunk_tokens = \n", ":1:16: ", "Invalid value"),
        (b'collection = "x"\nlanguage = ', ":2:12: ", "Invalid value"),
        (b'collection = "x" "hunter2"', ":1:18: ", "Expected newline"),
        (b'collection = "x"\ncollection = "hunter2"', ":2:", "Cannot overwrite a value"),
        (b'# \xc3\xa9\nlanguage = "\xff"', ":2:13: ", "not UTF-8"),
        (b"models = " + b"[" * 5000, ": ", "too deep"),
    ],
)
def test_a_broken_file_is_reported_in_one_line(folder: Path, content: bytes, place: str, words: str) -> None:
    for file in (folder / "semlex.toml", files.own_file()):
        file.write_bytes(content)
        with pytest.raises(ConfigurationError) as caught:
            load_settings()
        message = str(caught.value)
        assert f"{file}{place}" in message
        assert words in message
        assert "\n" not in message
        assert SECRET not in message
        file.write_bytes(b"")


def test_names_that_are_no_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(folder / "semlex.toml", 'colection = "x"', f'embedding_api_key = "{SECRET}"', "[table]", "x = 1")
    monkeypatch.setenv("SEMLEX_COLECTION", "x")
    monkeypatch.setenv("SEMLEX_ZEBRA", "3")
    monkeypatch.setenv("SEMLEX_BENCH_LAYERS", "1")
    monkeypatch.setenv("SEMLEX_REQUIRE_BROWSER", "1")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    message = str(caught.value)
    for sentence in (
        f"{file}:1: colection is not a setting; did you mean collection?",
        f"{file}:2: embedding_api_key is not a setting; keys come from the environment only: SEMLEX_EMBEDDING_API_KEY",
        f"{file}:3: table is not a setting; did you mean database?",
        "SEMLEX_COLECTION is not a setting; did you mean SEMLEX_COLLECTION?",
        "SEMLEX_ZEBRA is not a setting; all settings: semlex config show",
    ):
        assert sentence in message
    assert "BENCH" not in message
    assert "BROWSER" not in message
    assert SECRET not in message


def test_the_commands(folder: Path) -> None:
    write(folder / "semlex.toml", f'database_url = "{URL}"', 'collection = "docs"')
    refused = semlex("status", code=2)
    command = refused.stderr.split("semlex config trust ")[1]
    shown = semlex("config", code=2)
    assert str(folder / "semlex.toml") in shown.stdout
    assert "is not trusted" in shown.stderr
    # The remedy, as it stands in the message.
    assert "semlex.toml" in semlex("config", "trust", command.strip()).stderr
    rows = {row["name"]: row for row in map(json.loads, semlex("config", "--json").stdout.splitlines())}
    assert rows["collection"] == rows["collection"] | {"value": "docs", "origin": str(folder / "semlex.toml")}
    assert "db.example" in rows["database_url"]["value"]
    assert SECRET not in json.dumps(rows)
    assert rows["keyword"]["origin"] == "built in"
    assert str(folder) in semlex("config", "untrust").stderr
    assert "is not trusted" in semlex("status", code=2).stderr
    assert "with a table [tool.semlex] exists" in semlex("config", "trust", "own", code=2).stderr


@pytest.mark.slow
def test_what_is_said_is_refused_where_it_disagrees_and_what_is_set_is_a_default(
    folder: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "page.md").write_text("A lion.\n", encoding="utf-8")
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SEMLEX_EMBEDDING_MODEL", "none")
    # Refused before anything is made.
    assert "chunk_tokens" in semlex("index", "docs", "-c", "one", "--chunk-tokens", "5", code=2).stderr
    assert semlex("collections", "--json").stdout == ""
    write(folder / "semlex.toml", 'language = "german"', "chunk_tokens = 100")
    semlex("index", "docs", "-c", "one")
    assert "german" in semlex("collections").stdout
    monkeypatch.setenv("SEMLEX_LANGUAGE", "french")
    assert "french" not in semlex("index", "docs", "-c", "one").stderr
    told = semlex("--verbose", "index", "docs", "-c", "one").stderr
    assert "language = french (SEMLEX_LANGUAGE) is not used: the collection has german" in told
    refused = semlex("index", "docs", "-c", "one", "--language", "french", code=2).stderr
    assert "german" in refused
    assert "french" in refused


@pytest.mark.slow
def test_a_model_of_the_environment_is_for_new_collections(
    folder: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "page.md").write_text("A lion.\n", encoding="utf-8")
    monkeypatch.setenv("DATABASE_URL", database_url)
    semlex("index", "docs", "-c", "one", "--model", "static")
    monkeypatch.setenv("SEMLEX_EMBEDDING_MODEL", "http://127.0.0.1:1/v1#m")
    monkeypatch.setenv("SEMLEX_DIMENSIONS", "99")
    assert "lion" in semlex("search", "lion", "-c", "one").stdout
    told = " ".join(semlex("--verbose", "index", "docs", "-c", "one").stderr.split())
    assert "embedding_model = http://127.0.0.1:1/v1#m (SEMLEX_EMBEDDING_MODEL) is not used: the collection has" in told
    assert "dimensions = 99 (SEMLEX_DIMENSIONS) is not used" in told
    refused = semlex("search", "lion", "-c", "one", "--model", "http://127.0.0.1:1/v1#m", code=4).stderr
    assert "127.0.0.1:1" in refused
