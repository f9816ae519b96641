"""Operations on a collection's sets of vectors: change the embedding model, roll back, compute missing vectors."""

from __future__ import annotations

import asyncio
from types import NoneType
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError, MissingExtraError, MissingKeyError, ModelError
from semlex.maintenance.reembed import EmbeddingFigures, Reembedding, ReembedReport
from semlex.maintenance.versions import drop_embeddings, list_embeddings, previous_version, roll_back
from semlex.options.collection import StorageName, storage_named
from semlex.options.declare import operation
from semlex.progress import ProgressOption, shown
from semlex.retriever.handle import Part
from semlex.search.request import check_ids
from semlex.store.embedding_versions import store_calibration
from semlex.store.query import chunks
from semlex.store.schema.collection import EmbeddingVersion, check_curve, curve_in_use
from semlex.types.confidence import ConfidenceCurve
from semlex.validation import Errors, check_parameters, check_range, kind_errors, model_errors, path_errors, text_errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from semlex.embedding.base import Embedder
    from semlex.json_values import AnyId
    from semlex.open_collection import OpenCollection, OpenModels
    from semlex.store.postgres.snapshot import Snapshot

    # Inside the class `list` is a method.
    Figures = list[EmbeddingFigures]
    Vectors = dict[str, NDArray[np.float32]]


MAX_VERSION = 2**31 - 1


def _named(model: object) -> Errors:
    """Return what is wrong with an argument that names an embedding model."""
    if model is None or isinstance(model, str):
        return text_errors("model", model, blank=False)
    return model_errors("model", model, "identity", "embed_documents", "embed_query")


class Embeddings(Part):
    """Operations on the sets of vectors of a collection; `Collection.embeddings` returns them."""

    @operation("list embeddings", "read")
    async def list(self) -> Figures:
        """Return all sets of vectors with their counts, sorted by number."""
        return await self._handle.reading(list_embeddings)

    @operation("reembed", "admin")
    async def change(
        self,
        model: str | Embedder,
        *,
        dimensions: int | None = None,
        tokenizer: str | PathLike[str] | None = None,
        vector_storage: StorageName | None = None,
        restart: bool = False,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> ReembedReport:
        """Change the embedding model, while the collection is searched and written.

        The new model's vectors are made beside those in use. When they are complete, indexed and checked, every later
        opening of the collection uses them. Callers with the old model, this object included, keep using the old
        vectors; reopen the collection with the new model. Repeat the call to continue a run that was interrupted.

        Args:
            model: An `Embedder`; a model's name or folder; or ``"static"``.
            dimensions: Length of the new vectors, as for a retriever.
            tokenizer: The tokenizer of a model on a server, as for a retriever.
            vector_storage: ``vector`` or ``halfvec``; None: as the vectors are stored now.
            restart: Whether to drop the vectors of an earlier, unfinished run first.
            dry_run: Whether to only count the chunks that the new model would embed.
            progress: Called as the work proceeds; ``bar`` shows a progress bar.

        Raises:
            ConfigurationError: The collection has this model already, or a change to another model was begun.
            StoreError: Another process changes the vectors, or a check failed; the old vectors stay in use.
            ModelError: The model fails, or gives another vector for the same text than before.
        """
        check_parameters(
            _named(model),
            kind_errors("dimensions", dimensions, int, NoneType),
            kind_errors("vector_storage", vector_storage, str, NoneType),
            path_errors("tokenizer", tokenizer),
            kind_errors("restart", restart, bool),
            kind_errors("dry_run", dry_run, bool),
        )
        bars = shown(progress)
        storage = None if vector_storage is None else storage_named(vector_storage)
        opened = await self._handle.ready()
        models = await self._handle.resources.named_model(model, dimensions=dimensions, tokenizer=tokenizer)
        try:
            with bars as tell:
                work = Reembedding(opened, models, storage, restart=restart, progress=tell)
                return await (work.dry_run() if dry_run else work.run())
        finally:
            opened.forget_versions()
            await asyncio.to_thread(models.close)

    @operation("roll back embeddings", "admin")
    async def roll_back(
        self, model: str | Embedder | None = None, *, force: bool = False, progress: ProgressOption = None
    ) -> ReembedReport:
        """Return to the vectors that were in use before the last change of the model; first compute missing ones.

        Args:
            model: The model that made those vectors; None: load it by its stored name, if it can be used here.
            force: Whether to go back although chunks lack a vector and the model cannot be used.
            progress: Called repeatedly with the progress; ``bar`` shows a progress bar.

        Raises:
            ConfigurationError: No vectors were in use before.
            StoreError: Chunks lack a vector and the model cannot be used, or another process changes the vectors.
            ModelMismatchError: The named model did not make these vectors.
        """
        check_parameters([] if model is None else _named(model), kind_errors("force", force, bool))
        bars = shown(progress)
        opened = await self._handle.ready()
        version = await previous_version(opened)
        models, why_not = await self._model_of(opened, version, model)
        try:
            with bars as tell:
                return await roll_back(opened, version, models, why_not, tell, force=force)
        finally:
            opened.forget_versions()
            if models is not None and models is not opened.models:
                await asyncio.to_thread(models.close)

    async def _model_of(
        self, opened: OpenCollection, version: EmbeddingVersion, model: str | Embedder | None
    ) -> tuple[OpenModels | None, str | None]:
        """Return the model that made a set of vectors, or why it cannot be used; raise if a named `model` fails."""
        if model is not None:
            return await self._handle.resources.named_model(model, dimensions=version.dimensions), None
        if opened.models.version is not None and opened.models.version.identity_key == version.identity_key:
            return opened.models, None
        try:
            models = await self._handle.resources.stored_model(version)
        except (ModelError, MissingExtraError, MissingKeyError) as error:
            return None, str(error)
        return (None, str(models.missing or models.embedding_choice)) if models.embedder is None else (models, None)

    @operation("drop embeddings", "admin")
    async def drop(self, version: int, *, force: bool = False) -> None:
        """Drop a set of vectors.

        Args:
            version: Number of the set; not the one in use.
            force: Whether to drop it although a process has searched it within the last minute, or fills it.

        Raises:
            ConfigurationError: No set has that number, or it is the one in use.
            StoreError: A process searches or fills it.
        """
        check_range("version", version, 1, MAX_VERSION)
        check_parameters(kind_errors("force", force, bool))
        opened = await self._handle.ready()
        await drop_embeddings(opened, version, force=force)
        opened.forget_versions()

    @operation("embed", "write")
    async def fill(self, progress: ProgressOption = None) -> int:
        """Compute the vectors of chunks that have none; return how many vectors were written."""
        with shown(progress) as tell:
            return await (await self._handle.indexer()).embed_missing(tell)

    async def vectors(self, ids: Iterable[AnyId]) -> Vectors:
        """Return the stored vectors of chunks by id, float32 of shape (d,); chunks without a vector are left out."""
        listed = check_ids(ids)

        async def read(opened: OpenCollection) -> Vectors:
            if opened.info.embedding is None:
                await opened.refresh()  # another process may have stored the first vectors in the meantime

            async def look(snapshot: Snapshot) -> Vectors:
                return await chunks.fetch_vectors(snapshot.connection, await opened.follow(snapshot), listed)

            return await opened.database.read_snapshot("read vectors", look)

        return await self._handle.reading(read)

    @property
    def calibration(self) -> ConfidenceCurve | None:
        """Return the curve for `SearchResult.confidence`: that of the file ``calibration=``, else the stored one.

        Raises:
            ConfigurationError: The collection is not open, or the file is of another model.
        """
        curve, _ = curve_in_use(self._handle.opened.curve, self._handle.opened.info)
        return curve

    async def store_calibration(self, curve: ConfidenceCurve | None) -> None:
        """Store a confidence curve for the set of vectors in use, in place of an earlier curve; each set has its own.

        Processes that search notice it within 20 seconds.

        Args:
            curve: A curve that `semlex.evaluation.calibrate` learned; None drops the stored one.

        Raises:
            ConfigurationError: The curve was learned with another model, or the collection has no vectors.
            PrivilegeError: This role may not write: keep the curve in a file.
        """
        check_parameters(kind_errors("curve", curve, ConfidenceCurve, NoneType))
        opened = await self._handle.ready()
        await opened.look()
        info = opened.info
        if info.embedding is None:
            raise ConfigurationError(f"collection {info.names.collection!r} has no vectors: nothing to calibrate")
        if curve is not None:
            check_curve(curve, info, "this calibration")
        version, stored = info.embedding.version, None if curve is None else curve.to_dict()
        await opened.database.write("store the calibration", lambda c: store_calibration(c, info, version, stored))
        opened.forget_versions()
        await opened.look()
