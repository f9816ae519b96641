"""Converts nodes and filters of LlamaIndex to documents and filters of semlex, and chunks to nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from semlex.errors import FieldError, ValidationError
from semlex.filters.fields import refusal
from semlex.filters.tree import F
from semlex.integrations.calls import NOTHING, all_of, any_of, check_depth, key_field, metadata_with_place
from semlex.types.documents import Document as SemlexDocument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.filters.tree import FilterTree
    from semlex.types.documents import StoredChunk
    from semlex.types.results import SearchResult


PLACE = "filters"
# What a list must hold and what a text must be, by the operators that need one.
LISTS = (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL)
TEXTS = (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)
WILDCARDS = re.compile(r"[\\%_]")


def tree_of_filters(filters: MetadataFilters, *, needed: bool = False, depth: int = 1) -> FilterTree:
    """Convert a nested filter; without conditions it always holds, and is refused if one is `needed`."""
    check_depth(PLACE, depth)
    if not filters.filters:
        if needed:
            raise refusal(PLACE, "missing", "a condition in every group; clear() deletes all nodes")
        return all_of([])
    parts = [
        tree_of_filters(part, needed=needed, depth=depth + 1)
        if isinstance(part, MetadataFilters)
        else tree_of_filter(part, needed=needed)
        for part in filters.filters
    ]
    if filters.condition == FilterCondition.OR:
        return any_of(parts)
    # Several conditions under "not": none of them holds.
    return ~any_of(parts) if filters.condition == FilterCondition.NOT else all_of(parts)


def tree_of_filter(one: MetadataFilter, *, needed: bool = False) -> FilterTree:
    """Convert a condition; its key is one metadata key, even with dots, or a field of semlex's own (``@page``)."""
    operator, value = FilterOperator(one.operator), one.value
    place = f"{PLACE}.{one.key[:40]}"
    field = F(one.key) if one.key.startswith("@") else key_field(one.key)
    if operator == FilterOperator.IS_EMPTY:
        return field.empty()
    if value is None:
        raise refusal(place, "wrong_type", "a value; for a missing value, use FilterOperator.IS_EMPTY", "None")
    if operator in LISTS:
        if not isinstance(value, list):
            raise refusal(
                place, "wrong_type", f"a list, which the operator '{operator.value}' needs", type(value).__name__
            )
        if needed and operator == FilterOperator.NIN and not value:
            raise refusal(place, "missing", "a value in the list; clear() deletes all nodes")
        return _listed(field, operator, value)
    if operator in TEXTS:
        if not isinstance(value, str):
            raise refusal(
                place, "wrong_type", f"a text, which the operator '{operator.value}' needs", type(value).__name__
            )
        pattern = "%" + WILDCARDS.sub(r"\\\g<0>", value) + "%"
        return field.like(pattern) if operator == FilterOperator.TEXT_MATCH else field.ilike(pattern)
    return {
        FilterOperator.EQ: field.__eq__,
        FilterOperator.NE: field.__ne__,
        FilterOperator.GT: field.__gt__,
        FilterOperator.GTE: field.__ge__,
        FilterOperator.LT: field.__lt__,
        FilterOperator.LTE: field.__le__,
        FilterOperator.CONTAINS: field.contains,
    }[operator](value)


def _listed(field: F, operator: FilterOperator, values: Sequence[object]) -> FilterTree:
    """Return a condition with a list; an empty list contains nothing, and every list has all of an empty one."""
    if operator in {FilterOperator.IN, FilterOperator.NIN}:
        found = field.in_(values) if values else NOTHING
        return found if operator == FilterOperator.IN else ~found
    if operator == FilterOperator.ANY:
        return field.any(values) if values else NOTHING
    return field.all(values) if values else field.exists() & ~(field == None)  # noqa: E711 - JSON's null


# The key of the metadata under which the rest of a node is stored: its kind, relationships, templates, excluded keys.
NODE = "_node"
REF_DOC_ID = "ref_doc_id"
KINDS: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
}


def documents_of_nodes(nodes: Sequence[BaseNode]) -> list[SemlexDocument]:
    """Convert nodes of LlamaIndex's own classes to documents."""
    errors = []
    for row, node in enumerate(nodes):
        if KINDS.get(node.class_name()) is not type(node):
            kinds = ", ".join(kind.__name__ for kind in KINDS.values())
            limit = f"a node of LlamaIndex's own kinds ({kinds})"
            errors.append(FieldError(row, None, "node", "wrong_type", limit, type(node).__name__))
        elif NODE in node.metadata:
            limit = f"without the key {NODE}, under which the store keeps the rest of a node"
            errors.append(FieldError(row, node.node_id, "metadata", "wrong_type", limit))
    if errors:
        raise ValidationError(errors)
    return [_document(node) for node in nodes]


def _document(node: BaseNode) -> SemlexDocument:
    kept = node.model_dump(mode="json", exclude={"id_", "embedding", "metadata", "text"}, exclude_defaults=True)
    if "text_resource" in kept:
        kept["text_resource"].pop("text", None)
    kept[REF_DOC_ID] = node.ref_doc_id
    return SemlexDocument(node.get_content(MetadataMode.NONE), {**node.metadata, NODE: kept}, node.node_id)


def node_of(chunk: StoredChunk) -> BaseNode:
    """Return a chunk as the node that was stored, else as a `TextNode` whose source is the chunk's document."""
    metadata: dict[str, Any] = metadata_with_place(chunk)
    stored = metadata.get(NODE)
    kind = KINDS.get(str(stored.get("class_name"))) if isinstance(stored, dict) else None
    if stored is None or kind is None:
        made = TextNode(id_=chunk.id, text=chunk.content, metadata=metadata)
        if chunk.parent_id and not chunk.source:  # that of a chunk of a file is another chunk
            made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=chunk.parent_id)
        return made
    del metadata[NODE]
    kept = {name: value for name, value in stored.items() if name not in {REF_DOC_ID, "class_name"}}
    if issubclass(kind, TextNode):
        kept["text"] = chunk.content
    else:
        kept["text_resource"] = {**kept.get("text_resource", {}), "text": chunk.content}
    return kind.from_dict({**kept, "id_": chunk.id, "metadata": metadata})


def scored_node(hit: SearchResult) -> NodeWithScore:
    """Return the node of a hit, with the score that ranks it."""
    return NodeWithScore(node=node_of(hit), score=hit.score)


def of_documents(ref_doc_ids: Sequence[str]) -> FilterTree:
    """Return a filter for nodes that were cut from one of these documents, and for added parts of the documents."""
    ids = list(ref_doc_ids)
    return key_field(NODE, REF_DOC_ID).in_(ids) | (F("@parent").in_(ids) & ~F("@source_document").exists())
