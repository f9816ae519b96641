"""`semlex prove`: its scenarios pass with intact data, fail with data that a test damages, and leave nothing behind."""

import json
import signal
import threading
from functools import partialmethod

import psycopg
import pytest
import typer
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex.__main__ import _interrupted
from semlex.cli.commands.prove import ending_at_sigterm
from semlex.errors import ConfigurationError, ConnectionFailedError
from semlex.proof import check, children, followed_tables, interruptions, soak, together
from semlex.proof.check import LIMIT_SECONDS, Fault
from semlex.proof.folders import Indexing
from semlex.proof.followed_tables import Following
from semlex.proof.report import html_page, verdict
from semlex.proof.run import KINDS, Proof, chosen
from semlex.proof.scenarios import SCHEMA, Scenario, Site, Tries
from semlex.store.proving import Ground
from tests.support.databases import execute, new_role
from tests.support.folders import TEMPORARY
from tests.support.manual_clock import ManualClock
from tests.support.shell import Shell
from tests.support.waiting import until

RUN = [kind for kind in KINDS.values() if not kind.needs]
# One scenario of each way to check data. The others are tried with lost data only, or with `--full`.
SOME = {"kill-index", "kill-add", "kill-reembed", "kill-follow", "crash", "together", "hostile", "damage"}
# These scenarios store chunks of files or rows, which are counted: an added chunk may be found as a wrong count.
OF_DOCUMENTS = {kind.name for kind in RUN if issubclass(kind, (Indexing, Following))}
BRIEFLY = ("--minutes", "0.001")


@pytest.fixture(autouse=True)
def _preloaded(monkeypatch):
    """Keep the tests' own fork server, which has imported more than `preload` asks for."""
    monkeypatch.setattr(children, "preload", lambda: None)
    for module, size, value in ((soak, "SECONDS", 1.0), (together, "WRITES", 3), (interruptions, "ROUNDS", 4)):
        monkeypatch.setattr(module, size, value)
    monkeypatch.setattr(followed_tables, "ROUNDS", 2)  # what is begun in one commits in the other


@pytest.fixture(scope="module")
def own_site(make_server_folder, postgres_major):
    """A site whose servers start from copies of a prepared folder. Its own folder must be gone at the end."""
    with Site(place=TEMPORARY, template=make_server_folder, major=postgres_major) as site:
        yield site
    assert not site.folder.exists()


@pytest.fixture
def prove(own_site, monkeypatch):
    """Run scenarios on that site; `sabotage(url, names)` damages the stored data before the last check of each try."""

    def run(kinds, sabotage=None, **options):
        monkeypatch.setattr(own_site, "_sabotage", sabotage)
        return Proof(own_site, kinds, **options).run()

    return run


def schemas(url):
    return {name for (name,) in execute(url, "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'")}


def faults_of(report):
    return {one.name: dict(one.found) for one in report.scenarios}


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
    """Return a `sabotage` that damages one chunk, or its vector in the version that searches use."""

    def change(url, names):
        with psycopg.connect(url) as connection:
            statement = sql.SQL("SELECT embedding_version FROM {} WHERE name = %s").format(names.registry)
            [(version,)] = connection.execute(statement, [names.collection])
            [(first,)] = connection.execute(sql.SQL("SELECT min(chunk_id) FROM {}").format(names.chunk))
            parts = {"chunk": names.chunk, "vectors": names.embedding(version), "first": sql.Literal(first)}
            for statement in statements:
                assert connection.execute(sql.SQL(statement).format(**parts)).rowcount == 1

    return change


def check_found(report, kinds, way):
    """Each of these scenarios must have found one fault; its kind is `way`, except in some of `OF_DOCUMENTS`."""
    found = faults_of(report)
    assert {name for name, counts in found.items() if sum(counts.values()) == 1} == {kind.name for kind in kinds}
    assert {name: counts for name, counts in found.items() if counts != {way: 1}}.keys() <= OF_DOCUMENTS


@pytest.mark.timeout(900)
def test_every_scenario_finds_nothing_and_then_what_is_lost(prove, monkeypatch):
    """Each try runs twice: first with intact data, then with damaged data."""
    intact, kills, lose = {}, [], breaking(BREAKS["lost"])

    def twice(scenario, attempt):
        kills.append(attempt(scenario).kills)
        intact[scenario.names.collection] = scenario.name
        return attempt(scenario)

    monkeypatch.setattr("semlex.proof.run.LIMIT_SECONDS", 2 * LIMIT_SECONDS)
    for kind, attempt in [(kind, kind.attempt) for kind in RUN]:
        monkeypatch.setattr(kind, "attempt", partialmethod(twice, attempt))
    report = prove([*KINDS.values()], lambda url, names: names.collection in intact and lose(url, names))
    found, names = report.to_dict(), {kind.name for kind in RUN}
    assert {*intact.values()} == names, [one["faults"] for one in found["scenarios"]]
    assert not report.passed
    check_found(report, RUN, "lost")
    assert {one["name"] for one in found["scenarios"] if one["tries"]} == names
    assert found["not_run"].keys() == set(KINDS) - names
    [soaked] = [one["notes"] for one in found["scenarios"] if one["name"] == "soak"]
    assert "memory growth since the first round in KiB" in soaked  # also if it is 0, or less
    assert sum(kills) > 0
    assert found["versions"]["fsync"] == "on"
    assert found["versions"]["pgvector"][0].isdigit()
    page = html_page(json.loads(json.dumps(found)))
    assert page.count("<td><b>") == len(names)
    assert "semlex prove: failed</title>" in page


@pytest.mark.parametrize("way", ["doubled", "wrong"])
def test_every_scenario_finds_what_is_broken(prove, full, way):
    kinds = [kind for kind in RUN if full or kind.name in SOME]
    report = prove(kinds, breaking(BREAKS[way]))
    assert not report.passed
    check_found(report, kinds, way)


def test_every_scenario_that_hangs_is_given_up(own_site, monkeypatch):
    clock, goes_on = ManualClock(), threading.Event()

    def hang(url, names):
        clock.advance(LIMIT_SECONDS + 1)
        goes_on.wait()

    monkeypatch.setattr(own_site, "_sabotage", hang)
    kinds = chosen(["kill-add", "crash", "damage"])
    proof = Proof(own_site, kinds, clock=clock)
    report = proof.run()
    goes_on.set()
    for hung in proof._runs:
        hung.lane.join()
    assert faults_of(report) == {kind.name: {"hung": 1} for kind in kinds}


def test_a_call_that_comes_back_late_is_found(prove, monkeypatch):
    monkeypatch.setattr("semlex.proof.interruptions.LATE_SECONDS", -1.0)
    assert faults_of(prove(chosen(["black-hole"]))) == {"black-hole": {"hung": 1}}


def test_an_answer_that_lacks_a_hit_is_found(prove, monkeypatch):
    """The tables are intact."""
    compare = check.compare_scores
    monkeypatch.setattr(check, "compare_scores", lambda found, *others: compare(dict([*found.items()][1:]), *others))
    names = ["kill-delete", "kill-optimize", "together"]
    assert faults_of(prove(chosen(names))) == {key: {"wrong": 1} for key in names}


def test_a_server_of_the_user_is_left_as_it_was(shell, database_url, tmp_path):
    before = schemas(database_url)
    options = ("--only", "kill-add,kill-index,hostile,crash", "--seed", "7", "--page", str(tmp_path / "page.html"))
    report = json.loads(shell("prove", *options, *BRIEFLY, "--json").stdout)
    assert (report["passed"], report["seed"]) == (True, 7)
    assert [one["name"] for one in report["scenarios"]] == ["kill-index", "kill-add", "hostile"]
    assert set(report["not_run"]) == {"crash"}
    page = (tmp_path / "page.html").read_text()
    assert "kill-index" in page
    assert "semlex prove: passed</title>" in page
    assert schemas(database_url) == before
    assert "passed: 1 try and 1 kill in" in shell("prove", "--only", "kill-add", *BRIEFLY).stdout
    execute(database_url, f"CREATE SCHEMA {SCHEMA}")  # nor is a schema used that exists
    assert "--schema" in shell("prove", *BRIEFLY, code=2).stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--only", "kil"), "did you mean kill? known: "),
        (("--only", "crash"), "leave out --database and DATABASE_URL"),
        (("--only", ","), "names no scenario"),
        (("--minutes", "1", "--hours", "1"), "exclude"),
        (("--page", "missing/page.html"), "--page: missing/page.html cannot be written: name a file"),
        (("--schema", ""), "schema must"),
    ],
)
def test_wrong_options_are_refused_before_the_first_try(shell, options, message):
    done = shell("prove", *options, code=2)
    assert message in done.stderr
    assert done.stdout == ""


def test_the_error_of_a_role_without_a_right_shows_the_statement_that_grants_it(database_url, tmp_path):
    execute(database_url, "DROP EXTENSION IF EXISTS vector CASCADE")
    with new_role(database_url) as role:
        shell = Shell(make_conninfo(database_url, user=role), tmp_path)
        options = ("prove", "--only", "damage", *BRIEFLY)
        assert "CREATE EXTENSION vector;" in shell(*options, code=3).stderr
        execute(database_url, "CREATE EXTENSION vector")
        grant = shell(*options, code=3).stderr.partition("to run: ")[2].strip()
        assert grant.startswith("GRANT CREATE ON DATABASE")
        execute(database_url, grant)
        assert "passed" in shell(*options).stdout


def test_a_report_is_printed_although_the_server_is_gone(shell, monkeypatch):
    remove = Ground.remove

    def fail(ground):
        remove(ground)
        raise ConnectionFailedError("the server is gone")

    monkeypatch.setattr(Ground, "remove", fail)
    done = shell("prove", "--only", "damage", *BRIEFLY, "--page", "page.html", code=3)
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
    done = shell("prove", "--only", "damage,hostile", *BRIEFLY, code=3)
    assert "damage: wrong in try 1: ConnectionFailedError: the server is gone" in done.stdout
    assert "\nfailed: " in done.stdout
    assert "the server is gone" in done.stderr


class Unclosable(Scenario):
    """A scenario whose closing fails."""

    name, what = "unclosable", "nothing"

    def begin(self):
        self.opened.callback(self._fail)

    def attempt(self):
        return Tries()

    def _fail(self):
        raise ConnectionFailedError("the server is gone")


class Failing(Unclosable):
    """Its tries fail as well."""

    name = "failing"

    def attempt(self):
        raise Fault("lost", "everything")


class Unbegun(Unclosable):
    """Its beginning fails as well, after it has opened something."""

    name = "unbegun"

    def begin(self):
        super().begin()
        raise Fault("hung", "in the beginning")


def test_a_proof_goes_on_after_a_scenario_whose_closing_fails(database_url):
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


def test_an_exit_code_that_is_raised_instead_of_an_interrupt_is_kept():
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


def test_an_interrupted_proof_ends_after_the_tries_that_have_begun(prove):
    reported = threading.Event()

    def tell(report, seconds):
        if not report.interrupted:
            raise KeyboardInterrupt
        reported.set()

    kinds = chosen(["kill-add", "kill-delete", "damage"])
    report = prove(kinds, lambda *_: reported.wait(), seconds=3600, lanes=1, tell=tell)
    assert [one.tries for one in report.scenarios] == [1, 0, 0]
    assert verdict(report.to_dict()) == "interrupted, no fault so far"


def test_a_fault_ends_with_1(shell, monkeypatch):
    broken = breaking(BREAKS["lost"])
    monkeypatch.setattr(Site, "sabotage", lambda site, names, url=None: broken(url or site.url, names))
    done = shell("prove", "--only", "kill-add", *BRIEFLY, code=1)
    assert "kill-add: lost in try 1" in done.stdout
    assert "failed" in done.stdout


def test_names_of_scenarios():
    assert {kind.group or kind.name for kind in chosen(["kill", "crash"])} == {"kill", "crash"}
    assert len(chosen([])) == len(KINDS)
    with pytest.raises(ConfigurationError):
        chosen(["none"])
