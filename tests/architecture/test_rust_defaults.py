"""Defaults in the code of the index have their reasons beside them: a missing value is an error, not a wrong answer."""

import re

import pytest

from tests.architecture.test_rust_imports import FORBIDDEN, is_within, read_sources

DEFAULT = re.compile(r"\bunwrap_or(_default|_else)?\((?!PoisonError)")


@pytest.mark.parametrize("part", FORBIDDEN)
def test_a_default_has_its_reason_beside_it(part):
    sources = {module: code.splitlines() for module, code in read_sources().items() if is_within(module, part)}
    assert sources
    bare = [
        f"{module}:{number}: {line.strip()}"
        for module, lines in sources.items()
        for number, line in enumerate(lines, start=1)
        if DEFAULT.search(line) and not any("//" in near for near in lines[number - 2 : number + 1])
    ]
    assert bare == []
