"""Which server and which collection a command works on: what is typed counts, and what is printed says the same."""

import json
import os

import pytest

from semlex.settings.sources import load_settings
from tests.support.shell import run_here


@pytest.fixture
def handbook(shell):
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "none"
    shell("index", "docs", "-c", "handbook")
    return shell


def names(shell):
    return [entry["name"] for entry in shell.objects("collections")]


SOURCES = ("argument", "environment", "semlex.toml", "config.toml")


@pytest.mark.parametrize("folder_says", SOURCES)
@pytest.mark.parametrize("server_says", SOURCES)
def test_the_nearer_of_folder_and_server_counts(folder_says, server_says, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    own = tmp_path / "own" / "config.toml"
    monkeypatch.setenv("SEMLEX_CONFIG", str(own))
    monkeypatch.setenv("PGHOST", "libpq.example")
    monkeypatch.chdir(tmp_path)
    files = {"semlex.toml": tmp_path / "semlex.toml", "config.toml": own}
    own.touch()
    arguments: dict[str, object] = {}
    said = (("database_url", server_says, "postgresql://u@db.example/x"), ("data_dir", folder_says, str(tmp_path)))
    for name, source, value in said:
        if source == "argument":
            arguments[name] = value
        elif source == "environment":
            monkeypatch.setenv(f"SEMLEX_{name.upper()}", value)
        else:
            with files[source].open("a", encoding="utf-8") as file:
                file.write(f'{name} = "{value}"\n')
    if "semlex.toml" in (server_says, folder_says):
        assert run_here(("config", "trust"), os.environ, tmp_path).returncode == 0
    settings = load_settings(**arguments)
    is_embedded = SOURCES.index(folder_says) < SOURCES.index(server_says)
    assert (settings.database_url is None) == is_embedded
    assert settings.is_set("database_url") != is_embedded
    assert settings.data_dir == tmp_path
    assert bool(settings.overridden.get("database_url")) == is_embedded
    if is_embedded:
        assert settings.retriever_options["db_url"] is None
        assert settings.retriever_options["data_folder"] == tmp_path / "postgres"


@pytest.mark.slow
def test_an_option_for_a_folder_leaves_the_server_of_the_environment_alone(shell, open_folder):
    shell.environment["DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/production"
    shell.environment["SEMLEX_KEEP_ALIVE"] = "0"
    done = shell("collections", "drop", "handbook", "--yes", "--data-dir", str(open_folder), code=6)
    assert "127.0.0.1" not in done.stderr
    assert f"Server: the embedded Postgres in {open_folder}/postgres" in done.stderr


def test_a_folder_and_a_server_are_not_both_typed(shell):
    url = shell.environment["DATABASE_URL"]
    refused = shell("collections", "--database", url, "--data-dir", "scratch", code=2)
    assert "--database and --data-dir" in refused.stderr
    assert not (shell.folder / "scratch").exists()


def test_an_option_before_the_command_of_a_group_counts_or_is_refused(shell):
    shell("index", "docs", "-c", "handbook", "--model", "none")
    shell("index", "docs", "-c", "other", "--model", "none")
    assert shell("documents", "-c", "handbook", "outline", "keys.md").stdout.startswith("     1  Keys")
    assert "no index" in shell("fields", "-c", "handbook", "remove", "year", code=2).stderr
    assert json.loads(shell("config", "--json", "show").stdout.splitlines()[0])["name"]
    for line in ("jobs --limit 5 show x", "documents --vanished show keys.md", "serve --port 1 token list"):
        refused = shell(*line.split(), code=2)  # no such command has this option
        assert refused.stdout == ""
        assert "No such option" in refused.stderr


@pytest.mark.slow
def test_what_writes_takes_the_only_collection_and_previews_it(handbook):
    (handbook.folder / "docs" / "new.md").write_text("# New\n\nA new page.\n", encoding="utf-8")
    [preview] = handbook.objects("sync", "docs", "--dry-run")
    [done] = handbook.objects("sync", "docs")
    assert preview["plan"] == done["plan"]
    assert (done["run"]["added"], done["run"]["unchanged"]) == (1, 2)
    assert names(handbook) == ["handbook"]
    rows = handbook.folder / "rows.jsonl"
    rows.write_text(json.dumps({"content": "An apple.", "id": "a"}) + "\n", encoding="utf-8")
    assert "the only collection: handbook" in handbook("documents", "add", "rows.jsonl").stderr
    [job] = handbook.objects("jobs", "submit", "index", "docs")
    assert job["collection"] == "handbook"
    rows.write_text(json.dumps({"text": "A pear.", "vector": [1, 0], "id": "b"}) + "\n", encoding="utf-8")
    handbook("documents", "import", "rows.jsonl", "--text-field", "text", "--vector-field", "vector")
    assert names(handbook) == ["handbook"]
    handbook("index", "docs")  # which makes one
    assert sorted(names(handbook)) == ["default_collection", "handbook"]


@pytest.mark.slow
def test_the_remedy_after_try_names_its_collection(handbook):
    handbook("try", "docs", "keys")
    (handbook.folder / "docs" / "fruit.txt").unlink()
    told = " ".join(handbook("try", "docs", "keys").stderr.split())
    [collection] = [name for name in names(handbook) if name.startswith("try_")]
    remedy = f"semlex delete --collection {collection} --source docs --vanished"
    assert remedy in told
    [report] = handbook.objects(*remedy.split()[1:], "--yes")
    assert report["documents"] == 1


@pytest.mark.slow
def test_the_shells_remedies_name_the_collection_that_is_open(handbook, monkeypatch):
    from semlex.cli.commands import shell as session

    handbook("index", "docs", "-c", "other")
    (handbook.folder / "docs" / "keys.md").unlink()
    monkeypatch.setattr(session, "require_editor", lambda: None)
    lines = "rotate\n:open 1\n:collection other\nrotate\n:open 1\n"
    done = run_here(("shell", "-c", "handbook"), handbook.environment, handbook.folder, lines)
    told = [line for line in done.stderr.splitlines() if "semlex documents show" in line]
    assert ["--collection handbook" in line for line in told] == [True, False]
    assert ["--collection other" in line for line in told] == [False, True]
