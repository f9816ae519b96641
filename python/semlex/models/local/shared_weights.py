"""Weights in memory, shared by everything in this process that runs the same model on the same device.

A set of weights lives as long as somebody refers to it: `share` looks in a dictionary of weak references, so the last
user that closes, or is collected, takes the weights along. A failed load leaves nothing behind but an empty place that
the next user fills. A process made by ``fork`` starts without models.
"""

from __future__ import annotations

import logging
import os
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semlex.errors import ModelError
from semlex.forks import new_lock
from semlex.models.local import memory
from semlex.models.local.device import Placement
from semlex.models.local.fair_lock import FairLock
from semlex.models.local.forked import torch_process
from semlex.models.local.forward.reference import FORWARDS
from semlex.models.local.load import load_weights
from semlex.models.local.self_test import find_defect

if TYPE_CHECKING:
    from semlex.models.files import ModelFolder
    from semlex.models.local.forward.reference import Forward

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A setting that was tried and given up.

    Attributes:
        device: ``mps``, ``cuda`` or ``cpu``.
        precision: ``float32``, ``bfloat16`` or ``float16``.
        attention: Form of the forward pass.
        failure: What was wrong, as a phrase.
    """

    device: str
    precision: str
    attention: str
    failure: str

    def __str__(self) -> str:
        # The precision stands in the failure where it is the cause.
        place = self.device if self.precision in self.failure else f"{self.device} in {self.precision}"
        return f"{self.attention} attention on {place} {self.failure}"


class SharedModel:
    """One set of weights, loaded at first use. Made by `share` only.

    Attributes:
        folder: The model.
        placement: Device and precision.
        lock: Held during a forward pass: two at a time would need twice the memory, and MPS is not safe with two. It is
            let go between passes, so that a search does not wait for a whole load.
        token_cap: Most tokens in a pass since memory ran out, or None.
    """

    def __init__(self, folder: ModelFolder, head: str, placement: Placement) -> None:
        self.folder = folder
        self.placement = placement
        self.lock = FairLock()
        self.token_cap: int | None = None
        self._head = head
        # The weights and the forms that passed the test, in a mapping that the finalizer empties.
        self._held: dict[str, Any] = {}
        finalizer = weakref.finalize(self, _release, self._held, placement.device, os.getpid())
        finalizer.atexit = False

    def model(self) -> Any:
        """The model of transformers."""
        if "model" in self._held:  # nobody waits for a pass to end only to look
            return self._held["model"]
        with self.lock:
            if "model" not in self._held:
                torch_process.use()
                self._held["model"] = load_weights(self.folder, self._head, self.placement)
            return self._held["model"]

    def forward(self, attention: str) -> Forward:
        """One form of the forward pass."""
        form: Forward | None = self._held.get(attention)
        if form is None:
            with self.lock:
                form = self._held.get(attention) or FORWARDS[attention](self.model())
                self._held[attention] = form
        return form

    def defect(self, attention: str) -> str | None:
        """The outcome of the self-test, remembered for the life of the process."""
        key = (str(self.folder.path), self.folder.revision, self._head, self.placement, FORWARDS[attention])
        if key in _outcomes:
            return _outcomes[key]
        with self.lock:
            if key in _outcomes:
                return _outcomes[key]
            model = self.model()
            try:
                defect, form = find_defect(model, FORWARDS[attention], self.placement.precision)
            except Exception as error:
                if not memory.is_exhausted(error):
                    raise
            else:
                _outcomes[key] = defect
                if form is not None:
                    self._held[attention] = form
                return defect
        raise exhausted(self)


@dataclass(frozen=True, slots=True)
class Running:
    """A model in a setting that passed the self-test.

    Attributes:
        shared: The weights.
        attention: Form of the forward pass.
        failures: Settings that were given up before.
    """

    shared: SharedModel
    attention: str
    failures: tuple[Attempt, ...]


def share(folder: ModelFolder, head: str, placement: Placement) -> SharedModel:
    """The one set of weights of a model on a device; nothing is loaded yet."""
    key = (str(folder.path), folder.revision, head, placement)
    with _sharing:
        found = _shared.get(key)
        if found is None:
            _shared[key] = found = SharedModel(folder, head, placement)
        return found


def open_model(folder: ModelFolder, head: str, placement: Placement, attention: str) -> Running:
    """Opens a model in the first setting that passes the self-test, and logs one line when that is not the wanted one.

    Returns:
        The model. The settings that are tried: the wanted form and then safer ones; all of them in float32; all of
        them in float32 on the CPU.
    """
    failures: list[Attempt] = []
    for place in dict.fromkeys([placement, Placement(placement.device, "float32", "the safest"), SAFEST]):
        shared = share(folder, head, place)  # the one before is let go here, so that two are never loaded at once
        for form in forms_from(attention):
            defect = shared.defect(form)
            if defect is None:
                if failures:
                    logger.warning(
                        "%s: %s; the model now runs in %s with %s attention on %s",
                        folder.name,
                        "; ".join(map(str, failures)),
                        place.precision,
                        form,
                        place.device,
                    )
                return Running(shared, form, tuple(failures))
            failures.append(Attempt(place.device, place.precision, form, defect))
    raise ModelError(
        f"{folder.name} fails the self-test in every setting: {'; '.join(map(str, failures))}; the weights may be "
        "damaged (fetch the model again), or this version of torch or transformers is broken here (install another)"
    )


def forms_from(attention: str) -> list[str]:
    """A form of the forward pass and, behind it, the ones to fall back to."""
    names = list(FORWARDS)
    return list(dict.fromkeys([*names[names.index(attention) :], "reference"]))


def exhausted(shared: SharedModel) -> ModelError:
    """The error for a device on which not even one row finds room."""
    return ModelError(
        f"{shared.folder.name}: the memory of {shared.placement.device} does not suffice for a single row; shorten the "
        "texts (max_length), close other models and programs, or use device='cpu', dtype='bfloat16' or a smaller model"
    )


def _release(held: dict[str, Any], device: str, process: int) -> None:
    if held and process == os.getpid():
        held.clear()
        memory.give_back(device)


SAFEST = Placement("cpu", "float32", "the safest")
_shared: weakref.WeakValueDictionary[tuple[str, str, str, Placement], SharedModel] = weakref.WeakValueDictionary()
_outcomes: dict[tuple[str, str, str, Placement, type[Forward]], str | None] = {}
_sharing = new_lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.clear)
