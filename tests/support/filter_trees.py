"""Documents and filters, drawn so that they often meet: the same few names and values in both."""

import datetime as dt

from hypothesis import strategies as st

from semlex.filters.fields import Field, exact, is_number
from semlex.filters.tree import ORDER, PATTERNS, between, condition, joined, listed, negated

NAMES = [
    "a", "b", "tags", "a.b", "0", "-1", "+0", "in", 'say "x"', "o'k", "k%(x)s", "é", "", "$gt", "@source_document",
    "source_document",
]  # fmt: skip
TEXTS = [
    "", "a", "A", "ab", "aB", "a%", "%", "_", "\\", "a\\", "b", "é", "É", "\u0131", "K", "1", "true", "null", "\uffff",
    "🐘", "'", '"',
]  # fmt: skip
NUMBERS = [
    0, 1, 1.0, -0.0, -1, 0.1, 1e-7, 1e22, 10**22, 2**53 + 1, -(2**63), 10**40, 10**300, 1e300, 0.30000000000000004,
    5e-324,
]  # fmt: skip
PATTERN_PARTS = ["%", "_", "a", "A", "b", "\\%", "\\_", "\\\\", "\\a", "é", "%%"]
patterns = st.lists(st.sampled_from(PATTERN_PARTS), max_size=5).map("".join)
STORABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

texts = st.sampled_from(TEXTS) | st.text(st.sampled_from("abAB%_\\é"), max_size=4) | st.text(STORABLE, max_size=5)
_floats = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.sampled_from(NUMBERS) | st.integers(-3, 3) | st.integers() | _floats
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from(NAMES), values, max_size=5)
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple)
fields = paths.map(Field)
OWN = ["source", "source_document", "title", "chapter", "section", "type", "language", "parent", "id"]
instants = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))  # noqa: DTZ001


def about(given):
    """Conditions on metadata."""
    some, many = st.lists(values, min_size=1, max_size=4), st.lists(values, min_size=33, max_size=40)
    operands = [
        *(("==", values), ("==", values), ("contains", values), ("in", some), ("any", some), ("all", some)),
        *(("in", many), ("any", many), *((operator, numbers | texts) for operator in ORDER)),
        *(("exists", st.none()), ("empty", st.none()), ("startswith", texts.filter(bool))),
        *((operator, patterns) for operator in PATTERNS[1:]),
    ]
    bounds = st.lists(numbers, min_size=2, max_size=2) | st.lists(texts, min_size=2, max_size=2)
    return st.one_of(
        *(st.builds(condition, given, st.just(operator), operand) for operator, operand in operands),
        st.builds(listed, given, some),
        st.builds(lambda field, two: between(field, *sorted(two, key=_in_order)), given, bounds),
    )


def _in_order(bound):
    return exact(bound) if is_number(bound) else bound


def about_own():
    """Conditions on fields of semlex's own."""

    def own(names, operators, operands):
        given = names.map(lambda name: Field((name,), is_own=True))
        return st.builds(condition, given, st.sampled_from(operators), operands)

    filled, one_text, heading = texts.filter(bool), st.sampled_from(OWN), st.just("heading")
    time, page = st.sampled_from(["created", "updated"]), st.just("page")
    pages = st.integers(0, 4) | st.sampled_from([1.0, 2.5, -1, 10**30, 1e300])
    return st.one_of(
        own(one_text, ("==", *ORDER, "startswith"), filled),
        own(one_text, ("like", "ilike"), patterns),
        own(one_text, ("in",), st.lists(filled, min_size=1, max_size=3)),
        own(one_text | heading, ("exists", "empty"), st.none()),
        own(heading, ("contains",), filled),
        own(heading, ("any", "all", "=="), st.lists(filled, min_size=1, max_size=3)),
        own(time, ("==", *ORDER), instants),
        own(page, ("==", *ORDER), pages),
        own(page, ("in",), st.lists(pages, min_size=1, max_size=3)),
        own(page, ("exists", "empty"), st.none()),
        own(time, ("in",), st.lists(instants, min_size=1, max_size=3)),
        own(st.just("document"), ("==",), st.uuids().map(str)),
    )


def trees(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(negated),
            st.builds(joined, st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)),
        ),
        max_leaves=6,
    )


metadata_trees = trees(about(fields))
all_trees = trees(about(fields) | about_own())
own_trees = trees(about_own())
