"""Nodes of LlamaIndex as documents, and chunks as nodes."""

from __future__ import annotations

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

from semlex.errors import FieldError, ValidationError
from semlex.filters.tree import F
from semlex.integrations.conversion import key_field, metadata_with_place, score_of
from semlex.types.documents import Document as SemlexDocument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.filters.tree import FilterTree
    from semlex.types.documents import StoredChunk
    from semlex.types.results import SearchResult

# The key of the metadata under which the rest of a node is stored: its kind, relationships, templates, excluded keys.
NODE = "_node"
REF_DOC_ID = "ref_doc_id"
KINDS: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
}


def documents_of_nodes(nodes: Sequence[BaseNode]) -> list[SemlexDocument]:
    """The documents of nodes.

    Raises:
        ValidationError: Something is no node of LlamaIndex's own kinds, or its metadata has the key ``_node``.
    """
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
    """The node of a chunk, as it was stored; of a chunk that was no node a `TextNode`.

    What an added document is a part of is the source of its node.
    """
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
    """The node of a hit with the score that has put it in its place."""
    return NodeWithScore(node=node_of(hit), score=score_of(hit))


def of_documents(ref_doc_ids: Sequence[str]) -> FilterTree:
    """What holds for nodes that were cut out of one of these documents, and for added parts of them."""
    ids = list(ref_doc_ids)
    return key_field(NODE, REF_DOC_ID).in_(ids) | (F("@parent").in_(ids) & ~F("@uri").exists())
