"""Files of the Rust core import one way, and defaults in the code of the index have their reasons beside them."""

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "rust" / "core" / "src"
# Part of the index -> parts that it must not import.
FORBIDDEN = {
    "segments": ("keyword",),
    "keyword::analyzer": ("keyword::format", "keyword::build", "keyword::search", "segments"),
    "keyword::format": ("keyword::analyzer", "keyword::build", "keyword::search"),
    "keyword::build": ("keyword::analyzer", "keyword::search"),
    "keyword::search": ("keyword::build",),
}
USE = re.compile(r"(\bpub(?:\(\w+\))? )?\buse ([^;]+);")


def read_sources():
    """Path of each module from the crate's root -> its code, without its own tests."""
    sources = {}
    for file in CORE.rglob("*.rs"):
        *folders, name = file.relative_to(CORE).with_suffix("").parts
        if folders[:1] == ["tests"]:
            continue
        module = "::".join(folders if name in ("mod", "lib") else [*folders, name])
        sources[module] = file.read_text(encoding="utf-8").partition("#[cfg(test)]\nmod tests {")[0]
    return sources


MODULES = {module: re.sub(r"//[^\n]*", "", code) for module, code in read_sources().items()}


def expanded(tree):
    """``a::{b, c::{d, e}}`` -> ``a::b``, ``a::c::d``, ``a::c::e``; some of them twice."""
    group = re.search(r"\{([^{}]*)\}", tree)
    if group is None:
        return [re.sub(r" as \w+|\s|::self\b", "", tree)]
    names = [name for name in group[1].split(",") if name.strip()]
    return [path for name in names for path in expanded(tree[: group.start()] + name + tree[group.end() :])]


def defining(path, module):
    """The module that defines what a path names in another one; that one itself for what is of no module."""
    first, *names = path.split("::")
    here = {"crate": "", "super": module.rpartition("::")[0]}.get(first, f"{module}::{first}".removeprefix("::"))
    if here not in MODULES:
        return module
    for name in names:
        below = f"{here}::{name}".removeprefix("::")
        if below not in MODULES:
            exports = (one for pub, tree in USE.findall(MODULES[here]) if pub for one in expanded(tree))
            return next((defining(one, here) for one in exports if one.endswith(f"::{name}")), here)
        here = below
    return here


def imports():
    found = {}
    for module, code in MODULES.items():
        body = re.sub(r"\bmod \w+;", "", USE.sub("", code))
        used = [(pub, path) for pub, tree in USE.findall(code) for path in expanded(tree)]
        # What a module only names again is not its own import.
        paths = [path for pub, path in used if not pub or re.search(rf"\b{path.rpartition('::')[2]}\b", body)]
        paths += re.findall(r"\b\w+(?:::\w+)+", body)
        found[module] = {defining(path, module) for path in paths} - {module}
    return found


IMPORTS = imports()


def is_within(module, part):
    return f"{module}::".startswith(f"{part}::")


def test_no_rust_files_stand_in_a_circle():
    assert {"keyword::search::top", "segments", "segments::bitmap"} < IMPORTS["keyword::search::score"]
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_parts_of_an_index_import_one_way_and_defaults_have_reasons():
    for part, forbidden in FORBIDDEN.items():
        own = [module for module in MODULES if is_within(module, part)]
        assert own
        pairs = ((module, other) for module in own for other in IMPORTS[module])
        assert [pair for pair in pairs if any(is_within(pair[1], other) for other in forbidden)] == []
        sources = {module: code.splitlines() for module, code in read_sources().items() if is_within(module, part)}
        assert sources
        bare = [
            f"{module}:{number}: {line.strip()}"
            for module, lines in sources.items()
            for number, line in enumerate(lines, start=1)
            if DEFAULT.search(line) and not any("//" in near for near in lines[number - 2 : number + 1])
        ]
        assert bare == []


# --- defaults: a missing value is an error, not a wrong answer --------------------------------------------------------

DEFAULT = re.compile(r"\bunwrap_or(_default|_else)?\((?!PoisonError)")
