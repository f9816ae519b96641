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
STORABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

texts = st.one_of(
    st.sampled_from(TEXTS), st.text(st.sampled_from("abAB%_\\é"), max_size=4), st.text(STORABLE, max_size=5)
)
numbers = st.one_of(
    st.sampled_from(NUMBERS), st.integers(-3, 3), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
)
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
own_texts = st.sampled_from(OWN)
instants = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))  # noqa: DTZ001


def about(given):
    """Conditions on metadata."""
    some = st.lists(values, min_size=1, max_size=4)

    def made(operator, operands):
        return st.builds(condition, given, st.just(operator), operands)

    ordered = numbers | texts
    return st.one_of(
        *(made(operator, values) for operator in ("==", "==", "contains")),
        *(made(operator, some) for operator in ("in", "any", "all")),
        made("in", st.lists(values, min_size=33, max_size=40)),
        made("any", st.lists(values, min_size=33, max_size=40)),
        *(made(operator, ordered) for operator in ORDER),
        *(made(operator, st.none()) for operator in ("exists", "empty")),
        made("startswith", texts.filter(bool)),
        *(made(operator, patterns()) for operator in PATTERNS[1:]),
        st.builds(listed, given, some),
        st.builds(_between, given, st.lists(numbers, min_size=2, max_size=2) | st.lists(texts, min_size=2, max_size=2)),
    )


pages = st.integers(0, 4) | st.sampled_from([1.0, 2.5, -1, 10**30, 1e300])


def about_own():
    """Conditions on fields of semlex's own."""

    def own(names, operators, operands):
        given = names.map(lambda name: Field((name,), is_own=True))
        return st.builds(condition, given, st.sampled_from(operators), operands)

    filled = texts.filter(bool)
    one_text, heading = own_texts, st.just("heading")
    time, key = st.sampled_from(["created", "updated"]), st.just("document")
    return st.one_of(
        own(one_text, ("==", *ORDER, "startswith"), filled),
        own(one_text, ("like", "ilike"), patterns()),
        own(one_text, ("in",), st.lists(filled, min_size=1, max_size=3)),
        own(one_text | heading, ("exists", "empty"), st.none()),
        own(heading, ("contains",), filled),
        own(heading, ("any", "all", "=="), st.lists(filled, min_size=1, max_size=3)),
        own(time, ("==", *ORDER), instants),
        own(st.just("page"), ("==", *ORDER), pages),
        own(st.just("page"), ("in",), st.lists(pages, min_size=1, max_size=3)),
        own(st.just("page"), ("exists", "empty"), st.none()),
        own(time, ("in",), st.lists(instants, min_size=1, max_size=3)),
        own(key, ("==",), st.uuids().map(str)),
    )


def patterns():
    return st.lists(st.sampled_from(PATTERN_PARTS), max_size=5).map("".join)


def _between(given, bounds):
    return between(given, *sorted(bounds, key=lambda one: exact(one) if is_number(one) else one))


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
