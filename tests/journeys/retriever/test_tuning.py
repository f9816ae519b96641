"""Advice on a server's settings: it can be followed, and followed advice is not given again."""

import re
from dataclasses import replace

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.diagnostics.doctor import examine_server
from semlex.diagnostics.tuning import NAMES, Machine, advise
from semlex.store.postgres.embedded.server import server_memory, settings_of
from semlex.store.postgres.server_info import ServerSetting

pytestmark = pytest.mark.pg16
UNITS = {"": 1, "MB": 2**20, "GB": 2**30}
DEFAULTS = {
    "shared_buffers": 128 * 2**20, "effective_cache_size": 4 * 2**30, "work_mem": 4 * 2**20,
    "maintenance_work_mem": 64 * 2**20, "max_parallel_maintenance_workers": 2, "max_parallel_workers": 8,
    "max_worker_processes": 8, "max_wal_size": 2**30, "random_page_cost": 4.0, "jit": 0, "max_connections": 100,
}  # fmt: skip


def settings(values):
    return {
        name: ServerSetting(name, "on" if name == "jit" else str(value), value, name == "shared_buffers")
        for name, value in values.items()
    }


def number(value):
    found = re.fullmatch(r"([0-9.]+)(MB|GB)?", value)
    assert found is not None, value
    return float(found[1]) * UNITS[found[2] or ""]


@given(gigabytes=st.integers(1, 2048), cores=st.integers(1, 256))
def test_followed_advice_is_not_given_again(gigabytes, cores):
    machine = Machine(gigabytes * 2**30, cores)
    before = settings(DEFAULTS)
    advice = list(advise(before, machine))
    assert {one.setting for one in advice} == set(NAMES) - {"max_connections"}
    after = dict(before)
    for one in advice:
        assert one.statement is not None
        assert one.met is not None
        if one.setting == "jit":
            after["jit"] = replace(before["jit"], text="off")
        elif not one.met:
            after[one.setting] = replace(before[one.setting], number=number(one.advised))
    assert [one.setting for one in advise(after, machine) if not one.met] == []
    memory = {one.setting: number(one.advised) for one in advice if one.advised.endswith("B")}
    assert memory["shared_buffers"] <= machine.memory / 4
    assert memory["effective_cache_size"] <= machine.memory * 3 / 4


@given(gigabytes=st.integers(1, 2048), cores=st.integers(1, 256))
def test_there_is_no_advice_for_a_new_embedded_server(gigabytes, cores):
    memory = gigabytes * 2**30
    made = settings_of(memory, cores)
    values = DEFAULTS | {name: number(value) for name, value in made.items() if name in NAMES and name != "jit"}
    found = settings(values) | {"jit": ServerSetting("jit", made["jit"], 0, needs_restart=False)}
    assert [one.setting for one in advise(found, Machine(server_memory(memory), cores)) if not one.met] == []
    assert values["shared_buffers"] <= max(memory / 16, 128 * 2**20)


def test_of_an_unknown_machine_only_what_every_one_needs_is_judged():
    judged = {one.setting: one.met for one in advise(settings(DEFAULTS), Machine())}
    assert {name for name, met in judged.items() if met is not None} == {"max_wal_size", "random_page_cost", "jit"}
    assert all(one.statement is None for one in advise(settings(DEFAULTS), Machine()) if one.met is None)


def test_the_server_takes_what_is_advised(database_url):
    advice = examine_server(database_url).settings
    assert {one.setting for one in advice} == set(NAMES) - {"max_connections"}
    with psycopg.connect(database_url, autocommit=True) as connection:
        for one in advice:
            assert one.statement is not None  # the server runs on this machine
            assert one.now == connection.execute("SELECT current_setting(%s)", [one.setting]).fetchone()[0]
            try:
                connection.execute(one.statement)
            finally:
                connection.execute(f"ALTER SYSTEM RESET {one.setting}")


def test_the_command_shows_it(shell):
    shell.environment["PGOPTIONS"] = "-c random_page_cost=4"
    said = shell("doctor", "server").stdout
    assert "ALTER SYSTEM SET random_page_cost = '1.1'; -- then: SELECT pg_reload_conf();" in said
    (found,) = shell.objects("doctor", "server", "--json")
    assert {one["setting"] for one in found["settings"]} == set(NAMES) - {"max_connections"}
