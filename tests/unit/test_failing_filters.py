"""Which parts of a filter do not hold of a document."""

from hypothesis import given

from semlex.filters.evaluate import failing, holds
from semlex.filters.text import tree_of_text
from semlex.filters.tree import Group
from tests.support.filter_trees import documents, metadata_trees


@given(metadata_trees, documents)
def test_parts_fail_just_where_the_filter_does(tree, document):
    parts = failing(tree, document)
    assert (parts == []) == holds(tree, document)
    assert not any(holds(part, document) for part in parts)
    # Each is the smallest: no *and*, of which one part would say it.
    assert not any(isinstance(part, Group) and part.word == "and" for part in parts)


def test_known_parts():
    tree = tree_of_text("year > 2020 and (lang == 'de' or lang == 'fr') and not draft == true and exists tags")
    document = {"year": 2019, "lang": "en", "draft": True, "tags": ["a"]}
    assert [str(part) for part in failing(tree, document)] == [
        "year > 2020", 'lang == "de" or lang == "fr"', "draft != true",
    ]  # fmt: skip
    assert failing(tree, {"year": 2021, "lang": "de", "tags": []}) == []
