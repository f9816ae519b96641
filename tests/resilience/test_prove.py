"""`semlex prove`: every scenario runs and finds nothing, finds what is broken on purpose, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import threading

import psycopg
import pytest
import typer
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex.__main__ import _interrupted
from semlex.cli.commands.prove import ending_at_sigterm
from semlex.errors import ConfigurationError, ConnectionFailedError
from semlex.proof import check, children, soak
from semlex.proof.check import LIMIT_SECONDS, Fault
from semlex.proof.folders import Indexing
from semlex.proof.followed_tables import Following
from semlex.proof.report import html_page, verdict
from semlex.proof.run import KINDS, Proof, chosen
from semlex.proof.scenarios import SCHEMA, Scenario, Site, Tries
from semlex.store.proving import Ground
from tests.support.databases import execute
from tests.support.folders import TEMPORARY
from tests.support.manual_clock import ManualClock
from tests.support.shell import Shell
from tests.support.waiting import until

RUN = [kind for kind in KINDS.values() if not kind.needs]
# One of each way to check; the others find what is lost, and with `--full` everything.
SOME = {"kill-index", "kill-add", "kill-reembed", "kill-follow", "crash", "together", "hostile", "damage"}
# What is doubled of files and rows is a chunk that its document does not count.
OF_DOCUMENTS = {kind.name for kind in RUN if issubclass(kind, (Indexing, Following))}


@pytest.fixture(autouse=True)
def _preloaded(monkeypatch):
    """The processes of tests are forked from one that has imported more."""
    monkeypatch.setattr(children, "preload", lambda: None)
    monkeypatch.setattr(soak, "SECONDS", 1.0)


@pytest.fixture
def make_site(make_server_folder, postgres_major):
    """Makes sites whose servers begin with a copy of a database."""

    def make(sabotage=None):
        return Site(place=TEMPORARY, template=make_server_folder, major=postgres_major, sabotage=sabotage)

    return make


def schemas(url):
    return {name for (name,) in execute(url, "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'")}


def faults_of(report):
    return {one.name: dict(one.found) for one in report.scenarios}


# --- nothing is broken ------------------------------------------------------------------------------------------------


def test_every_scenario_finds_nothing(make_site):
    with make_site() as site:
        folder = site.folder
        report = Proof(site, list(KINDS.values())).run()
    found = report.to_dict()
    names = {kind.name for kind in RUN}
    assert report.passed, [one["faults"] for one in found["scenarios"]]
    assert {one["name"] for one in found["scenarios"] if one["tries"]} == names
    assert found["not_run"].keys() == set(KINDS) - names
    [soaked] = [one["notes"] for one in found["scenarios"] if one["name"] == "soak"]
    assert "memory growth since the first round in KiB" in soaked  # also if it is 0, or less
    assert found["kills"] > 0
    assert found["versions"]["fsync"] == "on"
    assert found["versions"]["pgvector"][0].isdigit()
    assert not folder.exists()
    page = html_page(json.loads(json.dumps(found)))
    assert page.count("<td><b>") == len(names)
    assert "passed" in page


# --- something is broken ----------------------------------------------------------------------------------------------


BREAKS = {
    "lost": ["DELETE FROM {vectors} WHERE chunk_id = {first}", "DELETE FROM {chunk} WHERE chunk_id = {first}"],
    "doubled": [
        (
            "INSERT INTO {chunk} OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(c, jsonb_build_object("
            "'chunk_id', 'another', 'keyword_id', 1000000000, 'chunk_no', c.chunk_no + 1000))).* "
            "FROM {chunk} AS c WHERE chunk_id = {first}"
        ),
        (
            'INSERT INTO {vectors} SELECT (jsonb_populate_record(v, \'{{"chunk_id": "another"}}\')).* '
            "FROM {vectors} AS v WHERE chunk_id = {first}"
        ),
    ],
    "wrong": ["UPDATE {chunk} SET chunk_text = chunk_text || ' more' WHERE chunk_id = {first}"],
}


def breaking(statements):
    """Changes one chunk of a collection, in the vectors that searches use."""

    def change(url, names):
        with psycopg.connect(url) as connection:
            version = connection.execute(
                sql.SQL("SELECT embedding_version FROM {} WHERE name = %s").format(names.registry), [names.collection]
            ).fetchone()
            assert version is not None
            parts = {"chunk": names.chunk, "vectors": names.embedding(version[0])}
            row = connection.execute(sql.SQL("SELECT min(chunk_id) FROM {}").format(names.chunk)).fetchone()
            assert row is not None
            for statement in statements:
                changed = connection.execute(sql.SQL(statement).format(first=sql.Literal(row[0]), **parts))
                assert changed.rowcount == 1

    return change


@pytest.mark.parametrize("way", BREAKS)
def test_every_scenario_finds_what_is_broken(make_site, full, way):
    kinds = [kind for kind in RUN if full or way == "lost" or kind.name in SOME]
    with make_site(breaking(BREAKS[way])) as site:
        report = Proof(site, kinds).run()
    assert not report.passed
    found = faults_of(report)
    assert {name for name, counts in found.items() if sum(counts.values()) == 1} == {kind.name for kind in kinds}
    assert {name: counts for name, counts in found.items() if counts != {way: 1}}.keys() <= OF_DOCUMENTS


def test_every_scenario_that_hangs_is_given_up(make_site):
    clock, goes_on, proof = ManualClock(), threading.Event(), None

    def hang(url, names):
        clock.advance(LIMIT_SECONDS + 1)
        goes_on.wait()

    with make_site(hang) as site:
        kinds = chosen(["kill-add", "crash", "damage"])
        proof = Proof(site, kinds, clock=clock)
        report = proof.run()
        goes_on.set()
        proof.join()
    assert faults_of(report) == {kind.name: {"hung": 1} for kind in kinds}


def test_a_call_that_comes_back_late_is_found(make_site, monkeypatch):
    monkeypatch.setattr("semlex.proof.interruptions.LATE_SECONDS", -1.0)
    with make_site() as site:
        report = Proof(site, chosen(["black-hole"])).run()
    assert faults_of(report) == {"black-hole": {"hung": 1}}


def test_an_answer_that_lacks_a_hit_is_found(make_site, monkeypatch):
    """Whatever the tables have."""
    compare = check.compare_scores
    monkeypatch.setattr(
        check, "compare_scores", lambda found, wanted, query: compare(dict(list(found.items())[1:]), wanted, query)
    )
    names = ["kill-delete", "kill-optimize", "together"]
    with make_site() as site:
        report = Proof(site, chosen(names)).run()
    assert faults_of(report) == {key: {"wrong": 1} for key in names}


# --- the user's server ------------------------------------------------------------------------------------------------


def test_a_users_server_is_left_as_it_was(shell, database_url, tmp_path):
    before = schemas(database_url)
    options = ("prove", "--only", "kill-add,kill-index,hostile,crash", "--minutes", "0.001", "--seed", "7")
    done = shell(*options, "--json", "--page", str(tmp_path / "page.html"))
    report = json.loads(done.stdout)
    assert (report["passed"], report["seed"]) == (True, 7)
    assert [one["name"] for one in report["scenarios"]] == ["kill-index", "kill-add", "hostile"]
    assert set(report["not_run"]) == {"crash"}
    assert "kill-index" in (tmp_path / "page.html").read_text()
    assert schemas(database_url) == before
    table = shell(*options[:2], "kill-add", *options[3:5]).stdout
    assert "passed: 1 try and 1 kill in" in table


def test_what_exists_is_refused(shell, database_url):
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
        assert "--schema" in shell("prove", "--minutes", "0.001", code=2).stderr
        connection.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(SCHEMA)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--only", "kil"), "did you mean kill? known: "),
        (("--only", "crash"), "leave out --database and DATABASE_URL"),
        (("--only", ","), "names no scenario"),
        (("--minutes", "1", "--hours", "1"), "exclude"),
        (("--page", "missing/page.html"), "--page: missing/page.html is not a file that can be written"),
        (("--schema", ""), "schema must"),
    ],
)
def test_wrong_options_are_refused_before_the_first_try(shell, options, message):
    done = shell("prove", *options, code=2)
    assert message in done.stderr
    assert done.stdout == ""


def test_a_role_without_a_right_is_told_what_to_ask_for(database_url, tmp_path):
    role = sql.Identifier("plain_prover")
    with psycopg.connect(database_url, autocommit=True) as connection:
        had = connection.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchone() is not None
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        try:
            connection.execute("DROP EXTENSION IF EXISTS vector CASCADE")
            url = make_conninfo(database_url, user="plain_prover")
            shell, options = Shell(url, tmp_path), ("prove", "--only", "damage", "--minutes", "0.001")
            assert "CREATE EXTENSION vector;" in shell(*options, code=3).stderr
            connection.execute("CREATE EXTENSION vector")
            grant = shell(*options, code=3).stderr.partition("to run: ")[2].strip()
            assert grant.startswith("GRANT CREATE ON DATABASE")
            connection.execute(grant.encode())
            assert "passed" in shell(*options).stdout
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))
            connection.execute("DROP EXTENSION IF EXISTS vector")
            if had:
                connection.execute("CREATE EXTENSION vector")


def test_a_report_is_printed_although_the_server_is_gone(shell, monkeypatch):
    remove = Ground.remove

    def fail(ground):
        remove(ground)
        raise ConnectionFailedError("the server is gone")

    monkeypatch.setattr(Ground, "remove", fail)
    done = shell("prove", "--only", "damage", "--minutes", "0.001", "--page", "page.html", code=3)
    assert "passed: 1 try" in done.stdout
    assert "the server is gone" in done.stderr
    assert (shell.folder / "page.html").exists()


def test_a_report_is_printed_although_every_try_fails(shell, monkeypatch):
    create = Ground.create

    def gone(*_, **__):
        raise ConnectionFailedError("the server is gone")

    def create_and_vanish(ground):
        create(ground)
        monkeypatch.setattr("semlex.store.proving.connected", gone)
        monkeypatch.setattr(Site, "client", gone)

    monkeypatch.setattr(Ground, "create", create_and_vanish)
    done = shell("prove", "--only", "damage,hostile", "--minutes", "0.001", code=3)
    assert "damage: wrong in try 1: ConnectionFailedError: the server is gone" in done.stdout
    assert "\nfailed: " in done.stdout
    assert "the server is gone" in done.stderr


class Unclosable(Scenario):
    """A scenario that cannot be closed."""

    name, what = "unclosable", "nothing"

    def begin(self):
        self.opened.callback(self._fail)

    def attempt(self):
        return Tries()

    def _fail(self):
        raise ConnectionFailedError("the server is gone")


class Failing(Unclosable):
    """The same, and its tries fail."""

    name = "failing"

    def attempt(self):
        raise Fault("lost", "everything")


class Unbegun(Unclosable):
    """The same, and it fails when it has opened something."""

    name = "unbegun"

    def begin(self):
        super().begin()
        raise Fault("hung", "in the beginning")


def test_a_scenario_that_cannot_be_closed_ends_no_proof(database_url):
    with Site(database_url) as site:
        report = Proof(site, [Failing, Unclosable, Unbegun], lanes=1).run()
    assert [one.tries for one in report.scenarios] == [1, 1, 1]
    assert faults_of(report) == {
        "failing": {"lost": 1, "wrong": 1},
        "unclosable": {"wrong": 1},
        "unbegun": {"hung": 1, "wrong": 1},
    }


def test_sigterm_leaves_nothing_behind(shell, database_url):
    before = schemas(database_url)
    with shell.start("prove", "--only", "damage,hostile", "--minutes", "60") as started:
        until(lambda: SCHEMA in schemas(database_url), "the proof has made its schema")
        started.send_signal(signal.SIGTERM)
        assert started.wait() == 128 + signal.SIGTERM
    assert schemas(database_url) == before


def test_a_proof_that_is_interrupted_while_it_makes_its_schema_leaves_nothing(database_url, monkeypatch):
    before, create = schemas(database_url), Ground.create

    def interrupted(ground):
        create(ground)
        assert SCHEMA in schemas(database_url)
        raise KeyboardInterrupt

    monkeypatch.setattr(Ground, "create", interrupted)
    with pytest.raises(KeyboardInterrupt), Site(database_url, SCHEMA):
        pass
    assert schemas(database_url) == before


def test_a_code_that_a_command_raises_instead_of_an_interrupt_is_kept():
    def stopped():
        with ending_at_sigterm():
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(typer.Exit) as given:
        stopped()
    assert given.value.exit_code == 128 + signal.SIGTERM
    assert isinstance(given.value.__context__, KeyboardInterrupt)
    assert not _interrupted(given.value)
    turned = ImportError()
    turned.__context__ = KeyboardInterrupt()
    assert _interrupted(turned)


def test_an_interrupted_proof_ends_after_the_tries_that_have_begun(make_site):
    told = threading.Event()

    def tell(report, seconds):
        if report.interrupted:
            told.set()
        else:
            raise KeyboardInterrupt

    with make_site(lambda *_: told.wait()) as site:
        report = Proof(site, chosen(["kill-add", "kill-delete", "damage"]), seconds=3600, lanes=1, tell=tell).run()
    assert [one.tries for one in report.scenarios] == [1, 0, 0]
    assert verdict(report.to_dict()) == "interrupted, no fault so far"


def test_a_fault_ends_with_1(shell, monkeypatch):
    broken = breaking(BREAKS["lost"])
    monkeypatch.setattr(Site, "sabotage", lambda site, names, url=None: broken(url or site.url, names))
    done = shell("prove", "--only", "kill-add", "--minutes", "0.001", code=1)
    assert "kill-add: lost in try 1" in done.stdout
    assert "failed" in done.stdout


def test_names_of_scenarios():
    assert {kind.group or kind.name for kind in chosen(["kill", "crash"])} == {"kill", "crash"}
    assert len(chosen([])) == len(KINDS)
    with pytest.raises(ConfigurationError):
        chosen(["none"])
