"""Which curve turns the cosines of a search into confidences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.types.confidence import ConfidenceCurve

if TYPE_CHECKING:
    from semlex.store.schema.collection import CollectionInfo


def stored_curve(collection: CollectionInfo) -> ConfidenceCurve | None:
    """The curve that is stored with the vectors in use; None without one."""
    embedding = collection.embedding
    if embedding is None or embedding.calibration is None:
        return None
    where = f"what collection {collection.names.collection!r} has stored with its vectors"
    return ConfidenceCurve.from_dict(embedding.calibration, where)


def check_curve(curve: ConfidenceCurve, collection: CollectionInfo, what: str) -> None:
    """Refuses a curve that was learned with other vectors than those in use."""
    name, embedding = collection.names.collection, collection.embedding
    if collection.distance.name != "cosine":
        raise ConfigurationError(
            f"{what} is of cosines, and collection {name!r} compares by {collection.distance.name}: leave it out"
        )
    if embedding is not None and embedding.identity_key != curve.identity_key:
        raise ConfigurationError(
            f"{what} was learned with {curve.model} ({curve.identity_key}), and the vectors of collection {name!r} are "
            f"of {embedding.model} ({embedding.identity_key}): leave it out, or calibrate again (semlex eval calibrate)"
        )


def curve_in_use(given: ConfidenceCurve | None, collection: CollectionInfo) -> tuple[ConfidenceCurve | None, list[str]]:
    """The curve of a search, and what is told with it: the one that was given, else the one that is stored."""
    if given is not None:
        check_curve(given, collection, "the calibration that was given (calibration=)")
        return given, []
    if collection.distance.name != "cosine":
        return None, []
    try:
        return stored_curve(collection), []
    except ConfigurationError as error:  # the hits are good without it
        return None, [f"hits have no confidence: {error}"]
