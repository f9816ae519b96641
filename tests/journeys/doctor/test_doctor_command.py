"""`semlex doctor` on the command line: short and ordered, exit codes, JSON, wrong input."""

import pytest

from semlex.diagnostics import doctor, tuning
from tests.support.databases import execute


@pytest.mark.slow
def test_the_command(shell, monkeypatch):
    monkeypatch.setattr(tuning, "machine_memory", lambda: 2**30)  # for which the tests' server is set up well
    assert "0 collections of schema semlex" in shell("doctor").stdout
    shell("index", "docs", "-c", "handbook", "--model", "static")
    well = shell("doctor").stdout
    assert well.splitlines()[-1].startswith("1 collection of schema semlex: ")
    assert not [word for word in ("warning", "hint", "not checked") if word in well]
    broken = "DELETE FROM semlex.handbook_embedding_1; UPDATE semlex.collection SET analyzer_version = 0"
    execute(shell.environment["DATABASE_URL"], broken)
    shell.environment["PGOPTIONS"] = "-c random_page_cost=4 -c jit=on"
    said = shell("doctor", code=3).stdout
    firsts = [line.split()[0] for line in said.splitlines() if not line.startswith(" ")]
    assert firsts[:2] == ["error", "warning"]
    assert "        semlex models fill --collection handbook\n" in said
    assert "hint" in firsts  # settings of a server that is not tuned, on one line
    assert said.count("setting ") == 0
    (found,) = shell.objects("doctor", "-c", "handbook", code=3)
    assert set(found) == {"server", "schema", "collections", "findings", "not_checked", "looked_at", "is_well"}
    assert set(found["findings"][0]) == {"code", "severity", "where", "what", "remedy", "command"}
    assert (found["is_well"], found["collections"]) == (False, ["handbook"])
    for command in ("models fill", "maintain reindex"):
        assert f"semlex {command} --collection handbook" in said
    # What it says helps.
    shell("maintain", "reindex", "--collection", "handbook")
    shell("models", "fill", "--collection", "handbook")
    shell("doctor")


@pytest.mark.slow
def test_models(shell, monkeypatch):
    # The devices are torch's, which takes seconds to import; tests/torch looks at them.
    monkeypatch.setattr(doctor, "_devices", lambda _: ({}, None, "nobody looks"))
    shell("index", "docs", "-c", "handbook", "--model", "static")
    shell("doctor", "--model", "static")
    said = shell("doctor", "--model", "no/such/model", code=4).stdout
    assert "embedding model no/such/model does not work here" in said
    # One that is only a default gives way to that of the collection, as it does for a search.
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "no/such/model"
    said = shell("doctor", code=4).stdout
    assert "model_differs" not in said
    assert "1 error" in said


@pytest.mark.slow
def test_wrong_input(shell):
    shell("index", "docs", "-c", "handbook", "--model", "none")
    assert "handbook" in shell("doctor", "-c", "missing", code=6).stderr
    assert shell("doctor", "--json", "server").stdout == shell("doctor", "server", "--json").stdout
    shell("doctor", "nonsense", code=2)
    shell.environment["DATABASE_URL"] = "host=/nowhere dbname=x"
    assert "nowhere" in shell("doctor", code=3).stderr
