"""Settings: precedence, trust in a folder's files, error messages; ``semlex config`` shows no secret."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from semlex.errors import ConfigurationError
from semlex.models import http_client
from semlex.settings import files
from semlex.settings.sources import load_settings, named_models
from semlex.settings.table import SETTINGS, Settings
from tests.support.settings_forms import world
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
def folder():
    """The working directory of a test; the own settings file is beside it."""
    with world() as made:
        yield made


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def semlex(*arguments, code=0):
    done = run_here(arguments, os.environ | {"COLUMNS": "400"})
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done


def refusal(**given):
    with pytest.raises(ConfigurationError) as caught:
        load_settings(**given)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_every_setting_comes_from_every_source(folder, monkeypatch):
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


def test_an_empty_variable_is_not_set(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "")
    assert load_settings().database_url is None
    monkeypatch.setenv("DATABASE_URL", URL)
    assert load_settings().database_url == URL
    assert load_settings().origins["database_url"] == "DATABASE_URL"
    assert SECRET not in repr(load_settings())
    monkeypatch.setenv("SEMLEX_DATABASE_URL", "postgresql://other")
    assert load_settings().database_url == "postgresql://other"


@pytest.mark.parametrize("line", LEADING_AWAY)
def test_a_folder_decides_nothing_about_places_until_it_is_trusted(folder, line):
    file = write(folder / "semlex.toml", line)
    name = line.partition(" ")[0]
    message = refusal()
    assert f"{file}:1: {name}" in message
    assert f"semlex config trust {folder}" in message
    files.trust(folder)
    assert load_settings().is_set(name)
    # What the trusted file says later is not what was trusted.
    write(file, line, "# changed")
    assert "has changed since its folder was trusted" in refusal()
    files.trust(folder)
    assert files.untrust(folder)
    assert not files.untrust(folder)
    assert "is not trusted" in refusal()
    # In the user's own file it needs no trust; an argument leaves the folder's value unused.
    file.unlink()
    write(files.own_file(), line)
    assert load_settings().is_set(name)


def test_what_needs_no_trust(folder):
    write(folder / "semlex.toml", 'collection = "docs"', 'embedding_model = "Qwen/Qwen3-Embedding-0.6B"')
    assert load_settings().collection == "docs"
    write(folder / "semlex.toml", f'database_url = "{URL}"')
    assert load_settings(database_url="postgresql://mine").database_url == "postgresql://mine"


def test_trust_is_of_the_real_folder(folder, tmp_path, monkeypatch):
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
        assert "is not trusted" in refusal()


def test_nobody_else_reads_the_list_of_trusted_folders(folder):
    write(folder / "semlex.toml")
    files.trust(folder)
    kept = files.own_file().with_name("trusted.json")
    assert kept.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in kept.parent.iterdir()) == ["config.toml", "trusted.json", folder.name]
    kept.write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="delete it, and trust the folders again"):
        files.trusted_files()


def test_the_working_directory_never_chooses_the_own_settings_file(folder, monkeypatch):
    write(folder / "config.toml", 'models = ["openai:x"]')
    content = write(folder / "semlex.toml", 'database_url = "postgresql://elsewhere/x"').read_bytes()
    trusted = {str(folder): hashlib.sha256(content).hexdigest()}
    write(folder / "trusted.json", json.dumps(trusted))
    for named in ("config.toml", "./semlex.toml", "~no-such-user/config.toml"):
        monkeypatch.setenv("SEMLEX_CONFIG", named)
        message = refusal()
        assert "SEMLEX_CONFIG must be an absolute path" in message
        assert message.count("SEMLEX_CONFIG") == 1
        with pytest.raises(ConfigurationError, match="SEMLEX_CONFIG must be an absolute path"):
            named_models()


def test_a_missing_home_is_reported():
    assert "data_dir begins with the home of a user that does not exist" in refusal(data_dir="~no-such-user/data")


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
def test_a_broken_file_is_reported_in_one_line(folder, content, place, words):
    for file in (folder / "semlex.toml", files.own_file()):
        file.write_bytes(content)
        message = refusal()
        assert f"{file}{place}" in message
        assert words in message
        assert "\n" not in message
        file.write_bytes(b"")


def test_names_that_are_no_settings(folder, monkeypatch):
    file = write(folder / "semlex.toml", 'colection = "x"', f'embedding_api_key = "{SECRET}"', "[table]", "x = 1")
    for name in ("SEMLEX_COLECTION", "SEMLEX_ZEBRA", "SEMLEX_BENCH_LAYERS", "SEMLEX_REQUIRE_BROWSER"):
        monkeypatch.setenv(name, "1")
    message = refusal()
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


@pytest.mark.slow
def test_what_is_said_is_refused_where_it_disagrees_and_what_is_set_is_a_default(shell):
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "none"
    # Refused before anything is made.
    assert "chunk_tokens" in shell("index", "docs", "-c", "one", "--chunk-tokens", "5", code=2).stderr
    assert shell.objects("collections") == []
    write(shell.folder / "semlex.toml", 'language = "german"', "chunk_tokens = 100")
    shell("index", "docs", "-c", "one")
    assert "german" in shell("collections").stdout
    shell.environment["SEMLEX_LANGUAGE"] = "french"
    assert "french" not in shell("index", "docs", "-c", "one").stderr
    told = shell("--verbose", "index", "docs", "-c", "one").stderr
    assert "language = french (SEMLEX_LANGUAGE) is not used: the collection has german" in told
    refused = shell("index", "docs", "-c", "one", "--language", "french", code=2).stderr
    assert "german" in refused
    assert "french" in refused


@pytest.mark.slow
def test_a_model_of_the_environment_is_for_new_collections(shell, monkeypatch):
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)
    address = "http://127.0.0.1:1/v1#m"
    shell("index", "docs", "-c", "one", "--model", "static")
    shell.environment |= {"SEMLEX_EMBEDDING_MODEL": address, "SEMLEX_DIMENSIONS": "99"}
    assert "banana" in shell("search", "banana", "-c", "one").stdout
    told = " ".join(shell("--verbose", "index", "docs", "-c", "one").stderr.split())
    assert f"embedding_model = {address} (SEMLEX_EMBEDDING_MODEL) is not used: the collection has" in told
    assert "dimensions = 99 (SEMLEX_DIMENSIONS) is not used" in told
    assert "127.0.0.1:1" in shell("search", "banana", "-c", "one", "--model", address, code=4).stderr


# --- semlex config ----------------------------------------------------------------------------------------------------


def rows():
    return {row["name"]: row for row in map(json.loads, semlex("config", "show", "--json").stdout.splitlines())}


def test_every_setting_is_shown_with_what_did_not_count(folder, monkeypatch):
    write(files.own_file(), "[search]\ntop_k = 9")
    write(folder / "semlex.toml", "top_k = 8")
    for name, value in (("RAG_TOP_K", "7"), ("SEMLEX_TOP_K", "6"), ("RAG_TOPK", "5")):
        monkeypatch.setenv(name, value)
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
    # An overridden variable is always printed, an overridden file only with --verbose.
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
def test_no_secret_is_shown(folder, monkeypatch, name, value, overridden):
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv(name, value)
    if overridden:
        write(folder / "semlex.toml", f'database_url = "{value}"')
        for variable in ("SEMLEX_DATABASE_URL", "SEMLEX_EMBEDDING_MODEL"):
            monkeypatch.setenv(variable, "postgresql://x" if variable != name else value)
    for arguments in (("config",), ("config", "show", "-v"), ("config", "show", "--json")):
        shown = semlex(*arguments)
        assert "models.example" in shown.stdout or "example/v1" not in value or overridden


def test_where_the_server_is_from(folder, monkeypatch):
    monkeypatch.setenv("PGSERVICE", "books")
    assert (rows()["database_url"]["value"], rows()["database_url"]["origin"]) == ("service=books", "PGSERVICE")
    # Where somebody has chosen the embedded server, libpq's variables choose no other.
    monkeypatch.setenv("SEMLEX_DATA_DIR", str(folder))
    assert rows()["database_url"]["value"] is None


def test_a_file_with_all_settings(folder, monkeypatch):
    own = files.own_file()
    assert f"{own} exists; --force replaces it" in semlex("config", "init", code=2).stderr
    assert own.read_text(encoding="utf-8") == ""
    assert str(own) in semlex("config", "init", "--force").stderr
    assert own.stat().st_mode & 0o077 == 0
    assert load_settings() == Settings()
    assert str(folder / "semlex.toml") in semlex("config", "init", "--folder").stderr
    assert semlex("config", "init", "--folder", code=2).stdout == ""
    assert load_settings() == Settings()
    own.unlink()
    monkeypatch.setenv("SEMLEX_CONFIG", str(own.parent / "below" / "deeper" / "config.toml"))
    semlex("config", "init")
    assert load_settings() == Settings()
    monkeypatch.setenv("SEMLEX_CONFIG", str(own.parent / "settings.json"))
    assert "would be JSON" in semlex("config", "init", code=2).stderr
    monkeypatch.setenv("SEMLEX_CONFIG", str(own.parent / "trusted.json" / "config.toml"))
    (own.parent / "trusted.json").touch()
    assert "cannot be written" in semlex("config", "init", code=2).stderr


def test_both_files_of_a_folder_are_trusted_together(folder):
    write(folder / "semlex.toml", '[database]\ndata_dir = "/srv/a"')
    write(folder / "pyproject.toml", '[tool.semlex.search]\ncalibration = "c.json"')
    assert semlex("config", "show", code=2).stderr.count("is not trusted") == 2
    told = semlex("config", "trust").stderr
    assert "semlex.toml" in told
    assert "pyproject.toml" in told
    assert rows()["calibration"]["origin"] == str(folder / "pyproject.toml")
    semlex("config", "untrust")
    assert semlex("config", code=2).stderr.count("is not trusted") == 2


@pytest.mark.slow
def test_searches_begin_as_the_settings_say(shell):
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "static"
    write(shell.folder / "semlex.toml", "top_k = 2", "[search]", "fusion = 'rrf'")
    (shell.folder / "notes").mkdir()
    for number in range(6):
        write(shell.folder / "notes" / f"{number}.md", f"Lions sleep, says note {number}.")
    shell("index", "notes", "-c", "notes")

    def found(*options):
        return [one for one in shell.objects("search", "lions", "-c", "notes", *options) if "id" in one]

    assert len(found()) == 2
    assert len(found("-k", "4")) == 4
    shell.environment["SEMLEX_MIN_SIMILARITY"] = "0.999"
    warned = shell("search", "lions", "-c", "notes").stderr
    assert "the default min_similarity=0.999 is ignored: the fusion 'rrf'" in warned
    assert found("--fusion", "score") == []
    assert len(found("--fusion", "score", "--min-similarity", "-1")) == 2
    # `why` explains the same search.
    assert "0.999" in shell("why", "0.md", "lions", "-c", "notes", "--fusion", "score").stdout
    shell.environment["SEMLEX_VECTOR_INDEX"] = "ivfflat"
    assert "ivfflat" in shell("maintain", "create-index", "-c", "notes").stderr
    assert "ivfflat" in shell("status", "-c", "notes", "--json").stdout


@pytest.mark.parametrize("address", ["http://user:hunter2/x@host/v1#m", "http://user:a@hunter2@host/v1#m"])
def test_a_password_with_signs_of_an_address_in_it_is_masked(address, monkeypatch):
    monkeypatch.setenv("SEMLEX_CHAT_MODEL", address)
    assert rows()["chat_model"]["value"] == "http://***@host/v1#m"
    assert "http://***@host/v1#m" in semlex("config", "show").stdout


@pytest.mark.parametrize("key", ["chat_model", "database_url", "top_k"])
def test_of_a_table_in_place_of_a_value_its_kind_is_shown(key, monkeypatch):
    monkeypatch.setenv(f"SEMLEX_{key.upper()}", "5")
    write(files.own_file(), f'{key} = {{ key = "hunter2" }}')
    assert "not used: a table" in semlex("config", "show", "-v").stdout
    assert [one["value"] for one in rows()[key]["overridden"]] == ["a table"]


def test_all_problems_are_told_beside_a_file_that_cannot_be_named(monkeypatch):
    monkeypatch.setenv("SEMLEX_CONFIG", "own.toml")
    monkeypatch.setenv("SEMLEX_TOP_K", "0")
    told = semlex("config", "show", code=2).stderr
    assert "SEMLEX_CONFIG must be an absolute path" in told
    assert "SEMLEX_TOP_K must be a whole number between" in told


def test_the_commands(folder):
    write(folder / "semlex.toml", f'database_url = "{URL}"', 'collection = "docs"')
    command = semlex("status", code=2).stderr.split("semlex config trust ")[1]
    shown = semlex("config", code=2)
    assert str(folder / "semlex.toml") in shown.stdout
    assert "is not trusted" in shown.stderr
    # The remedy, as it stands in the message.
    assert "semlex.toml" in semlex("config", "trust", command.strip()).stderr
    shown = rows()
    assert shown["collection"] == shown["collection"] | {"value": "docs", "origin": str(folder / "semlex.toml")}
    assert "db.example" in shown["database_url"]["value"]
    assert shown["keyword"]["origin"] == "built in"
    assert str(folder) in semlex("config", "untrust").stderr
    assert "is not trusted" in semlex("status", code=2).stderr
    assert "with a table [tool.semlex] exists" in semlex("config", "trust", "own", code=2).stderr
