"""Messages of refused input are sentences: what, where, and what helps; never the content."""

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semlex
from semlex import _core
from semlex.errors import SHOWN_ERRORS, FieldError, SemlexError, ValidationError
from semlex.ingest.bulk.row_batch import RowFields
from semlex.ingest.bulk.sources import opened_sources
from semlex.ingest.files.roots import existing_root
from semlex.ingest.given_documents import GivenDocuments
from semlex.jobs.kinds import AllowedFolders
from semlex.maintenance.dump import Manifest
from semlex.models.files import find_model
from semlex.models.tokenizer import given_tokenizer
from semlex.rule_messages import RULES, readable, sentence
from semlex.types.documents import Document

PACKAGE = Path(semlex.__file__).parent
HIDDEN = "zebra-stripes"


def codes_in_python():
    """Every code that stands as a literal in a call of `FieldError`, or of a short name for it."""
    places = {"FieldError": 3, "refuse": 1, "refusal": 1, "_error": 1}
    for source in (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(source)) if any(f"{name}(" in source for name in places) else ():
            if isinstance(node, ast.Call) and (place := places.get(getattr(node.func, "id", ""))) is not None:
                constants = (one for one in node.args[place : place + 1] if isinstance(one, ast.Constant))
                yield from (one.value for one in constants if isinstance(one.value, str))


@pytest.mark.slow
def test_every_code_has_a_sentence():
    found = {*codes_in_python()}
    assert found >= {"wrong_type", "missing", "unequal_lengths"}
    assert found | set(_core.ERROR_CODES) <= set(RULES)


@given(
    code=st.sampled_from(sorted(RULES)),
    limit=st.none() | st.sampled_from(["1 to 1000", "str", "list of str", "4096 bytes", "64"]),
    actual=st.none() | st.sampled_from(["0", "5000 bytes", "datetime", "NoneType", "character 7", "component 3"]),
)
def test_a_message_is_one_sentence(code, limit, actual):
    text = sentence("content", code, limit, actual)
    assert text.startswith("content ")
    assert not re.search(r"[{}\n]|None of|  |\ba [aeio]\w|\d{4}", text.split(": ")[0])
    assert code not in text or "_" not in code
    # Without a bound in the message there is a remedy.
    assert RULES[code].remedy or (limit or "") in text or RULES[code].plain


def test_sentences_numbers_keys_and_bounds():
    given = "the vector of a text that the model knows, or the text itself"
    for told, text in [
        (("top_k", "out_of_range", "1 to 1000", "0"), "top_k must be between 1 and 1,000; got 0"),
        (("top_k", "wrong_type", "int", "str"), "top_k must be an int; got a str"),
        (("top_k", "wrong_type", "int", "int64"), "top_k must be an int; got an int64: write int(value)"),
        (("x", "wrong_type", "float", "float32"), "x must be a float; got a float32: write float(value)"),
        (("y", "wrong_type", "list", "ndarray"), "y must be a list; got an ndarray: write value.tolist()"),
        (("top_k", "wrong_type", "int", "NoneType"), "top_k must be an int; got None"),
        (("ids", "wrong_type", "list of str", "set"), "ids must be a list of str; got a set"),
        (("query", "missing", "a text or a vector"), "query must be given: a text or a vector"),
        (("filters.year", "not_finite"), "filters.year holds NaN or infinity: use a finite number"),
        (("filters", "too_deep", "64"), "filters must be nested at most 64 levels: nest it less deeply"),
        (("x", "all_zero"), f"x holds only zeros and has no direction: give {given}"),
        (("vector", "not_usable", "finite values, not all zero"), "vector must have finite values, not all zero"),
        (("ids", "unequal_lengths", "3 texts", "2"), "ids must match 3 texts; got 2: give one for each"),
    ]:  # fmt: skip
        assert str(FieldError(-1, None, *told)) == text
    for row, told, text in [
        (1234, ("content", "too_long", "131072 bytes", "200000 bytes"),
         "content must have at most 131,072 bytes; got 200,000 bytes: shorten or split it"),
        (0, ("content", "too_short", "1 characters", "0 characters"),
         "content must have at least 1 character; got 0 characters"),
        (0, ("embedding", "wrong_dimension", "1 to 16000", "16001"),
         "embedding must have 1 to 16,000 components; got 16,001: use the collection's embedding model"),
        (0, ("embedding", "not_finite"),
         "embedding holds NaN or infinity: use a finite number or None, or leave the row out"),
    ]:  # fmt: skip
        assert str(FieldError(row, None, *told)) == f"row {row}: {text}"
    told = "x key 'when' has a datetime, which JSON does not know: use a string (value.isoformat())"
    assert str(FieldError(3, "a", "x", "unsupported_type", None, "datetime", "when")) == f"row 3 (id 'a'): {told}"
    assert readable("1 bytes of 1234567 bytes") == "1 byte of 1,234,567 bytes"
    for text in ("years 0001 to 9999", "-3.4028235e38 to 2**5300", "11 bytes"):
        assert readable(text) == text
    for metadata, key in [
        ({"good": 1, "day": datetime.now(UTC).date(), "when": {1}}, "when"),
        ({"outer": {"inner": [float("nan")]}}, "outer"),
        ({"strange\nkey": float("nan")}, None),
        ({"k" * 41: {1}}, None), ({f"{HIDDEN}\0": 1}, None), ({5: 1}, None),
    ]:  # fmt: skip
        with pytest.raises(ValidationError) as caught:
            GivenDocuments.taken([Document("good", {}), Document("good", metadata, id="b")]).checked(None)
        [error] = caught.value.errors
        assert (error.row, error.id, error.field, error.key) == (1, "b", "metadata", key)
        assert HIDDEN not in str(error)
        assert (repr(key) if key else "metadata h") in str(error)
    for name in ("ConfigurationError", "ConnectionFailedError", "ModelNotFoundError", "MissingKeyError"):
        kind = getattr(semlex.errors, name)
        for long in ("x" * 3_000_000, "/x" * 3_000, "word " * 600_000):
            message = str(kind(f"there is no folder {long}: give another one"))
            assert len(message) < 25_000
            assert message.startswith("there is no folder")
            assert message.endswith("give another one")
        usual = "there is no folder " + "/a folder" * 100
        assert str(kind(usual)) == usual
    for name in ("x" * 300, "/x/" + "y" * 300, "/".join(["z" * 200] * 30)):
        for use in (
            *(existing_root, find_model, given_tokenizer, lambda path: AllowedFolders([path])),
            *(lambda path: opened_sources(path, RowFields()), lambda path: Manifest.read(Path(path))),
        ):
            with pytest.raises(SemlexError):
                use(name)


@given(count=st.integers(1, 40))
def test_several_errors_are_lines(count):
    found = [FieldError(row, f"d{row}", "content", "too_short", "1 characters", "0 characters") for row in range(count)]
    lines = str(ValidationError(found)).split("\n")
    if count == 1:
        assert lines == [str(found[0])]
        return
    assert lines[0] == f"{count} errors:"
    assert lines[1 : SHOWN_ERRORS + 1] == [f"  {error}" for error in found[:SHOWN_ERRORS]]
    assert lines[SHOWN_ERRORS + 1 :] == ([f"  and {count - SHOWN_ERRORS} more (see .errors)"] if count > 10 else [])


@given(st.text(min_size=4), st.sampled_from(["nul", "deep", "type", "nan"]))
def test_no_message_holds_content(content, kind):
    deep, nan = [[[HIDDEN] * 3]], [HIDDEN, float("nan")]
    bad = {"nul": f"{HIDDEN}\0{content}", "deep": deep, "type": {HIDDEN, content}, "nan": nan}[kind]
    document = Document(f"{HIDDEN}\0" if kind == "nul" else HIDDEN, {"key": bad}, id="id")
    try:
        GivenDocuments.taken([document]).checked(None)
    except ValidationError as error:
        assert HIDDEN not in f"{error}{error!r}"  # noqa: PT017 - what is legal raises nothing
