"""Tests wait in one place: nothing else sleeps, limits are long unless they must expire, no assertion reads a clock."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# The places where tests wait, and the examples below.
EXEMPT = {TESTS / "support" / "waiting.py", TESTS / "support" / "manual_clock.py", Path(__file__)}
MIN_SECONDS = 30
# On the line of a shorter limit: the test asserts that it expires.
MARK = "# expires"

SLEEP = re.compile(r"\b(?:time|asyncio)\.sleep\((?!0[,)])|\bfrom (?:time|asyncio) import .*\bsleep\b")
LIMIT_NAME = re.compile(r"(?:\w*_)?(?:timeout|deadline|seconds)")
# Calls that take a limit, and its place among the arguments.
LIMIT_CALLS = {"timeout": 0, "wait_for": 1, "wait": 0, "join": 0, "result": 0, "settimeout": 0}
# Calls that take seconds as data.
DATA_CALLS = {"timedelta", "Checkup"}
SERVER_LIMIT = re.compile(
    r"\b(?:statement|lock|transaction)_timeout\s*(?:=|\bTO\b)\s*'?(\d+)\s*(ms|s|min)?\b", re.IGNORECASE
)
# What the lines of every limit have, and of many others.
MAY_LIMIT = re.compile(r"timeout|deadline|seconds|wait_for|(?<!['\"]\.)\b(?:wait|join|result)\(\s*[^\s)]")
READS_CLOCK = re.compile(r"monotonic|perf_counter|process_time|\btime(?:_ns)?\(\)")
UNITS = {"": 0.001, "ms": 0.001, "s": 1, "min": 60}


def name_of(node):
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))


def owner_of(function):
    """Whose method a function is: the name of an object, or of the function that returns it."""
    owner = getattr(function, "value", None)
    return "" if owner is None else name_of(getattr(owner, "func", owner))


def is_limit(name):
    return isinstance(name, str) and LIMIT_NAME.fullmatch(name) is not None


def limits_given(node):
    """The limits of a call (keywords, arguments), of a dictionary, or of a function's defaults. A clock has none."""
    if isinstance(node, ast.Call) and name_of(node.func) not in DATA_CALLS and owner_of(node.func) != "clock":
        yield from (keyword.value for keyword in node.keywords if is_limit(keyword.arg))
        place = LIMIT_CALLS.get(name_of(node.func), len(node.args))
        yield from node.args[place : place + 1]
    elif isinstance(node, ast.Dict):
        keys = (getattr(key, "value", None) for key in node.keys)
        yield from (value for key, value in zip(keys, node.values, strict=True) if is_limit(key))
    elif isinstance(node, ast.arguments):
        placed = [*node.posonlyargs, *node.args]
        defaults = [*[None] * (len(placed) - len(node.defaults)), *node.defaults, *node.kw_defaults]
        named = zip([*placed, *node.kwonlyargs], defaults, strict=True)
        yield from (default for parameter, default in named if is_limit(parameter.arg))


def is_short(node):
    """Whether an expression is a number of seconds between none and the minimum; 0 does not wait."""
    if isinstance(node, ast.IfExp):
        return is_short(node.body) or is_short(node.orelse)
    value = getattr(node, "value", None)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MIN_SECONDS


def near(tree, lines, words):
    """All nodes of the statements of a module in whose lines, or right above them, the words occur."""
    ends = [1, *(node.end_lineno for node in tree.body)]
    for above, node in zip(ends, tree.body, strict=False):
        if words.search("\n".join(lines[above - 1 : node.end_lineno])):
            yield from ast.walk(node)


def short_limits(tree, lines):
    short_names = {
        name_of(target)
        for node in tree.body
        if isinstance(node, ast.Assign) and is_short(node.value) and MARK not in lines[node.lineno - 1]
        for target in node.targets
    }
    for node in near(tree, lines, MAY_LIMIT):
        for given in limits_given(node):
            if given is not None and (is_short(given) or (isinstance(given, ast.Name) and given.id in short_names)):
                yield given.lineno
    for number, line in enumerate(lines, 1):
        if any(0 < int(amount) * UNITS[unit.lower()] < MIN_SECONDS for amount, unit in SERVER_LIMIT.findall(line)):
            yield number


def is_clock(function):
    """Whether calling it returns the time: of the module ``time``, or of an event loop."""
    name, of = name_of(function).removesuffix("_ns"), owner_of(function)
    if name == "time":
        return of == "time" or of.endswith("loop")
    return name in ("monotonic", "perf_counter", "process_time") and of in ("", "time")


def reads_clock(node, times):
    return any(
        (isinstance(part, ast.Call) and is_clock(part.func)) or (isinstance(part, ast.Name) and part.id in times)
        for part in ast.walk(node)
    )


def asserted_times(tree, lines):
    """Assertions that compare a time, or a variable of the same function that was computed from one."""
    for scope in near(tree, lines, READS_CLOCK):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            times = set()
            for node in ast.walk(scope):
                if isinstance(node, ast.Assign) and reads_clock(node.value, times):
                    times |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            for node in ast.walk(scope):
                parts = ast.walk(node.test) if isinstance(node, ast.Assert) else ()
                if any(isinstance(part, ast.Compare) and reads_clock(part, times) for part in parts):
                    yield node.lineno


def findings(source):
    """What breaks the rules in a file, with its line."""
    tree, lines = ast.parse(source), source.splitlines()
    sleeps = {number for number, line in enumerate(lines, 1) if SLEEP.search(line)}
    short = {number for number in short_limits(tree, lines) if MARK not in lines[number - 1]}
    found = {"sleep": sleeps, "short limit": short, "asserted time": {*asserted_times(tree, lines)}}
    return [f"{number}: {rule}" for rule, numbers in found.items() for number in sorted(numbers)]


@pytest.mark.slow
def test_tests_wait_in_one_place():
    found = {
        path.relative_to(TESTS).as_posix(): findings(path.read_text(encoding="utf-8"))
        for path in TESTS.rglob("*.py")
        if path not in EXEMPT
    }
    assert {path: broken for path, broken in found.items() if broken} == {}


def test_what_breaks_the_rules_is_found():
    for source in [
        "time.sleep(0.1)", "time.sleep(pause)", "await asyncio.sleep(0.01)", "from time import sleep",
        "PROGRAM = 'import time; time.sleep(5)'",
    ]:  # fmt: skip
        assert findings(source) == ["1: sleep"]
    for source in [
        "search('q', deadline=0.5)", "subprocess.run(['x'], timeout=10)", "Worker(max_seconds=3)",
        "process.communicate(timeout=5)", "connect(url, connect_timeout=2)", "OPTIONS = {'timeout': 0.2}",
        "ask(timeout=0.1 if is_slow else 60)", "def model(url, seconds=0.4): ...",
        "def model(url, *, seconds=0.4): ...",
        "begun.wait(10)", "thread.join(5)", "call.result(5)", "asyncio.wait_for(task, 20)", "asyncio.timeout(29.9)",
        "@pytest.mark.timeout(20)\ndef test(): ...", "connection.execute(\"SET statement_timeout = '1s'\")",
        "options = '-c lock_timeout=2000'", "'SET LOCAL lock_timeout TO 500'",
    ]:  # fmt: skip
        assert findings(source) == ["1: short limit"]
        first, *rest = source.split("\n")
        assert findings("\n".join([f"{first}  {MARK}", *rest])) == []
    assert findings("PATIENCE = 20\ncall.result(PATIENCE)") == ["2: short limit"]
    assert findings(f"PATIENCE = 20\ncall.result(PATIENCE)  {MARK}") == []
    assert findings(f"LEASE = 0.5  {MARK}\nJobs(lease_seconds=LEASE)") == []
    for asserted in [
        "assert time.monotonic() - begun < 5",
        "took = time.perf_counter() - begun\n    assert took < 5",
        "ends = time.time() + 5\n    assert loop.time() < ends",
        "assert f(1), asyncio.get_running_loop().time() > 3 or time.monotonic()\n    assert not time.time() > 3",
    ]:  # fmt: skip
        assert findings(f"def test(begun, loop):\n    {asserted}") == [f"{asserted.count(chr(10)) + 2}: asserted time"]
    for source in [
        "await asyncio.sleep(0)", "await asyncio.sleep(0, b'')", "'a lion that may sleep(5)'",
        "search('q', deadline=60)",
        "search('q', deadline=-1)", "search('q', deadline=True)", "search('q', deadline=deadline)",
        "timedelta(seconds=1)", "', '.join(names)", "begun.wait()", "wait_for(5)", "list(limit=5)",
        "PATIENCE = 60\ncall.result(PATIENCE)", "connection.execute('SET statement_timeout = 60000')",
        "connection.execute(\"SET lock_timeout = '2min'\")", "connection.execute('SET statement_timeout = 0')",
        "def test():\n    begun = time.monotonic()\n    print(begun)",
        "def test(clock):\n    assert clock.monotonic() == 5", "clock.timeout(1)",
        "def test():\n    assert told.time == 3",
    ]:  # fmt: skip
        assert findings(source) == []
