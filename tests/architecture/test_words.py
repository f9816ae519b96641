"""semlex speaks plain English: turns that readers need to read twice are banned from all text that they see."""

import ast
import re

import semlex
from tests.support.documented_programs import PAGES
from tests.support.folders import ROOT

BANNED = re.compile(
    r"\b(?:is|are|was|were)\s+told\b|\banew\b|\b(?:is|are)\s+no\s|\bthere\s+(?:is|are)\s+none\b|\bgoes\s+before\b"
    r"|\bstands?\s+(?:in|at|on|under|above|below|behind|beside)\b|\b(?:by\s+itself|by\s+themselves)\b|\bwhoever\b"
    r"|\bof\s+(?:yours|ours)\b|\bwhere\s+there\s+(?:is|are)\b|\bwhat\s+(?:is|was)\s+\w+\s+says\b|\bat\s+most\s+by\b"
    r"|\blets?\s+go\s+of\b|\ball\s+the\s+same\b|\bdrawn\s+by\s+lot\b",
    re.IGNORECASE,
)
# Rust is read by its documentation comments alone.
COMMENTS = re.compile(r"^\s*///(.*)$", re.MULTILINE)
# What each folder or file holds that people read: code with its docstrings, messages and help; pages.
READ = {
    "python": ("*.py", "*.pyi", "*.js", "*.html"),
    "rust/python": ("*.rs", "*.py"),
    "docs": ("*.md",),
    "examples": ("*.md", "*.py"),
    "README.md": (),
    "CONTRIBUTING.md": (),
    "tests/README.md": (),
}


def banned(text):
    """The banned turns of a text, with their lines; a turn may be broken between two lines."""
    return [f"{text.count(chr(10), 0, turn.start()) + 1}: {turn[0]}" for turn in BANNED.finditer(text)]


def files():
    for place, kinds in READ.items():
        if not kinds:
            yield ROOT / place
        for kind in kinds:
            yield from (ROOT / place).rglob(kind)


def text_of(path):
    text = path.read_text("utf-8")
    if path.suffix != ".rs":
        return text
    lines = [found[1] if (found := COMMENTS.match(line)) else "" for line in text.splitlines()]
    return "\n".join(lines)


def test_turns_are_found_and_all_text_is_plain():
    for text, found in [
        ("An error is told.", "is told"), ("Files are\ntold.", "are\ntold"), ("Build it anew.", "anew"),
        ("It is no list.", "is no "), ("These are no\n    hits.", "are no\n"), ("There is none.", "There is none"),
        ("An option goes before a file.", "goes before"), ("It stands in the table.", "stands in"),
        ("Words stand\nbeside it.", "stand\nbeside"), ("It ends by\nitself.", "by\nitself"),
        ("Whoever asks", "Whoever"), ("a table of yours", "of yours"), ("where there is an index", "where there is"),
        ("what is stored says", "what is stored says"), ("It lets go of a lock.", "lets go of"),
        ("It is read all the same.", "all the same"), ("a word drawn by lot", "drawn by lot"),
    ]:  # fmt: skip
        assert banned(f"\n{text}") == [f"2: {found}"]
    assert not banned("He told us: no list, a new one, None; this is not a list.")
    read = sorted(files())
    assert len(read) > 400
    places = [f"{path.relative_to(ROOT)}:{turn}" for path in read for turn in banned(text_of(path))]
    assert not places, "\n".join(places)
    found = ["work goes on", "again and again", "a pool of its own", "so many rows", "Most rows of a page"]
    assert [text for text in found if not BANNED_IN_CODE.search(text)] == []
    places = [
        f"{path.relative_to(ROOT)}:{line}: {turn[0]}"
        for path in (ROOT / "python" / "semlex").rglob("*.py")
        for line, text in strings(path)
        for turn in BANNED_IN_CODE.finditer(text)
    ]
    assert not places, "\n".join(places)


# Further turns that are banned from the docstrings, messages and help of the code.
BANNED_IN_CODE = re.compile(
    r"\bgo(?:es|ing)?\s+on\b|\bagain\s+and\s+again\b|\bof\s+(?:its|their)\s+own\b|\bso\s+(?:many|often)\b(?!\s+that\b)"
    r"|\bMost\s+(?:rows|bytes|tokens|characters|results)\b"
)


def strings(path, *, documented=True):
    """The texts of a Python file, with their lines; those that are not documentation are messages, help and output."""
    tree = ast.parse(path.read_text("utf-8"))
    left_out = {
        id(node.body[0].value)
        for node in (() if documented else ast.walk(tree))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


# Users read of vector search and keyword search. Names in code, such as `results.legs` or an entry "leg:", stay.
LEG = re.compile(r"""(?<![`.\w"'])legs?(?![`\w"':\[(])""", re.IGNORECASE)


def public_docstrings():
    """What `help` shows of the public names."""
    for name in semlex.__all__:
        one = getattr(semlex, name)
        members = vars(one).items() if isinstance(one, type) else ()
        shown = [(name, one), *((f"{name}.{member}", value) for member, value in members if member[0] != "_")]
        yield from ((place, value.__doc__) for place, value in shown if isinstance(value.__doc__, str))


def test_users_read_of_searches_and_not_of_legs():
    assert LEG.search("The keyword leg did not answer")
    assert LEG.search("tuning needs both legs")
    assert not LEG.search('`legs`: of results.legs, legs: a mapping; "legs", legs[0], leg(name)')
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in (ROOT / "python").rglob("*.py")
        for line, text in (strings(path, documented=False) if "leg" in path.read_text("utf-8") else ())
        if " " in text and re.search(r"\blegs?\b", text)
    ]
    found += [
        f"{path.relative_to(ROOT)}:{number}"
        for path in PAGES
        if path.parent.name != "design"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if LEG.search(line)
    ]
    found += [place for place, text in public_docstrings() if LEG.search(text)]
    assert found == []
