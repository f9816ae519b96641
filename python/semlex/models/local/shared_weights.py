"""Weights in memory, shared by all users of the same model on the same device, and tested before the first text."""

from __future__ import annotations

import logging
import os
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.errors import ModelError, WorkAbandonedError
from semlex.forks import new_lock
from semlex.models.files import ModelFolder, quiet_transformers
from semlex.models.local import memory
from semlex.models.local.device import Placement, torch_process
from semlex.models.local.fair_lock import FairLock
from semlex.models.local.forward import FORWARDS, Forward
from semlex.models.tokenizer import TokenRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# Batches of prefixes: number of the row (0 or 1) and length; the last one is a whole row. Ends within groups of 2, 4
# and 8 are among them. On a CPU three passes over 16, 22 and 6 tokens: a little more than reading the weights thrice.
CPU_BATCHES = (((0, 3), (0, 6), (1, 5), (1, 8)),)
# On GPUs also the edges of the blocks in which attention is computed there, and rows that begin alike for so long that
# a form may compute their beginning once.
GPU_BATCHES = (
    (*((0, length) for length in (2, 3, 5, 6, 7, 9, 14, 17, 30, 63)), *((1, length) for length in (3, 33, 66, 127))),
    tuple((0, length) for length in range(129, 141)),
)
# The commonest tokens of a byte-level vocabulary come first; the last ids of one may never have been trained.
COMMON_TOKENS = 20_000
# Components of vectors of norm 1, and cosines: what the order of summation alone changes stays a tenth below either.
FLOAT32_TOLERANCE = 1e-5
HALF_PRECISION_COSINE = 0.999


# Some devices compute attention wrongly without an error (torch before 2.13 on MPS lets later tokens leak into earlier
# positions). The states of one plain pass of the model's body over two rows are the reference. In a causal model, every
# prefix of a row must end in the state that the row has at that position. All prefixes go through the tested form of
# the forward pass in one batch, and one of them alone.
def find_defect(model: Any, form: type[Forward], precision: str) -> tuple[str | None, Forward | None]:
    """Test one form of the forward pass of a model; return the defect, or the form if it passed."""
    try:
        batches = CPU_BATCHES if model.device.type == "cpu" else GPU_BATCHES
        wholes = _rows(min(model.config.vocab_size, COMMON_TOKENS), batches[-1][-1][1])
        body = _body_states(model, wholes)
        expected = np.stack([body[row, length - 1] for batch in batches for row, length in batch])
        forward = form(model)
        prefixes = [[wholes[row, :length] for row, length in batch] for batch in batches]
        together = np.concatenate([_run(forward, rows) for rows in prefixes])
        alone = _run(forward, prefixes[0][1:2])
    except Exception as error:  # whatever a form raises, another form may not
        if isinstance(error, WorkAbandonedError) or memory.is_exhausted(error):
            raise
        return f"raised {type(error).__name__}", None
    if not all(np.isfinite(states).all() for states in (body, together, alone)):
        return "gave values that are not finite" if precision == "float32" else f"overflowed in {precision}", None
    exact = precision == "float32" and not _rounds_float32(model)
    agree = _close(together, expected, exact=exact)
    single = _close(alone, expected[1:2], exact=exact).all()
    if agree.all():
        return (None, forward) if single else ("gave different states from the model for a single row", None)
    # A whole row has no later tokens to see: where it agrees and a prefix does not, later tokens were seen.
    if agree[-1]:
        return "let later tokens leak into earlier ones", None
    return ("made the state of a row depend on its batch" if single else "gave different states from the model"), None


def _rows(vocabulary: int, length: int) -> NDArray[np.int64]:
    """Return (2, length) token ids, spread over the vocabulary."""
    numbers = np.arange(1, 2 * length + 1, dtype=np.int64) * 7_919  # a prime: no id comes twice in one row
    return (numbers % vocabulary).reshape(2, length)


def _body_states(model: Any, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return (rows, length, hidden size): the body's states of all positions."""
    import torch  # noqa: PLC0415 (loaded already)

    with torch.inference_mode():
        hidden = model.base_model(input_ids=torch.from_numpy(rows).to(model.device), use_cache=False).last_hidden_state
        states: NDArray[np.float32] = hidden.float().cpu().numpy()
    return states


def _run(forward: Forward, rows: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
    """Return the last tokens' states that a form computes for rows, (rows, hidden size)."""
    states: dict[int, NDArray[np.float32]] = {}
    for batch in forward.batches(TokenRows.of(rows), token_budget=1 << 20, max_rows=len(rows)):
        states |= zip(batch.rows.tolist(), forward.run(batch), strict=True)
    return np.stack([states[row] for row in range(len(rows))])


def _close(found: NDArray[np.float32], expected: NDArray[np.float32], *, exact: bool) -> NDArray[np.bool_]:
    """Return (rows,): whether two lists of vectors agree within their precision."""
    units = []
    for vectors in (found, expected):
        wide = vectors.astype(np.float64)
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        units.append(wide / np.where(norms == 0, 1.0, norms))
    agree: NDArray[np.bool_]
    if exact:
        agree = np.abs(units[0] - units[1]).max(axis=1) <= FLOAT32_TOLERANCE
    else:
        agree = np.sum(units[0] * units[1], axis=1) >= HALF_PRECISION_COSINE
    return agree


def _rounds_float32(model: Any) -> bool:
    """Return whether this process lets CUDA round the factors of float32 products to 10 bits (TF32)."""
    import torch  # noqa: PLC0415 (loaded already)

    return model.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"


# Of transformers, by the head on the model's body.
CLASSES = {"none": "AutoModel", "lm": "AutoModelForCausalLM", "classifier": "AutoModelForSequenceClassification"}


def load_weights(folder: ModelFolder, head: str, placement: Placement) -> Any:
    """Load a model from safetensors; its own code is not run, and missing weights are an error."""
    import torch  # noqa: PLC0415 (seconds, and not in the base install)

    exhausted = False
    with quiet_transformers() as transformers:
        try:
            model, report = getattr(transformers, CLASSES[head]).from_pretrained(
                str(folder.path),
                dtype=getattr(torch, placement.precision),
                attn_implementation="sdpa",
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
            model = model.eval().to(placement.device)
        except Exception as error:  # four libraries take part, and each has errors of its own
            exhausted = memory.is_exhausted(error)
            if not exhausted:
                raise ModelError(
                    f"{folder.name} cannot be loaded from {folder.path} ({type(error).__name__}); "
                    "the folder must hold config.json, tokenizer.json and *.safetensors of a Qwen3 model; "
                    "fetch it again"
                ) from error
    if exhausted:
        memory.give_back(placement.device)
        raise ModelError(
            f"{folder.name} in {placement.precision} does not fit into the memory of {placement.device}; "
            f"{memory.remedy(placement.device, placement.precision)}"
        )
    # transformers fills weights that it does not find with random numbers, and only warns.
    if report["missing_keys"]:
        raise ModelError(
            f"{folder.name}: {len(report['missing_keys'])} weights are missing from {folder.path} "
            f"(the first is {min(report['missing_keys'])}); is it another kind of model? If not, fetch it "
            "again"
        )
    return model


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A configuration that was tried and failed; `failure` is a phrase."""

    device: str
    precision: str
    attention: str
    failure: str

    def __str__(self) -> str:
        # The failure names the precision if that is the cause.
        place = self.device if self.precision in self.failure else f"{self.device} in {self.precision}"
        return f"{self.attention} attention on {place} {self.failure}"


class SharedModel:
    """One set of weights, loaded at first use. Made by `share` only."""

    def __init__(self, folder: ModelFolder, head: str, placement: Placement) -> None:
        self.folder = folder
        self.placement = placement
        # Held during a forward pass, because two at once would need twice the memory and are unsafe on MPS. Released
        # between passes, so that a search does not wait for a whole load.
        self.lock = FairLock()
        self.token_cap: int | None = None
        self._head = head
        # The weights and the forms that passed the test, in a mapping that the finalizer empties.
        self._held: dict[str, Any] = {}
        finalizer = weakref.finalize(self, _release, self._held, placement.device, os.getpid())
        finalizer.atexit = False

    def model(self) -> Any:
        """Return the model as an object of transformers; the first call loads it."""
        if "model" in self._held:  # nobody waits for a pass to end only to look
            return self._held["model"]
        with self.lock:
            if "model" not in self._held:
                torch_process.use()
                self._held["model"] = load_weights(self.folder, self._head, self.placement)
            return self._held["model"]

    def forward(self, attention: str) -> Forward:
        """Return a form of the forward pass by its name; the first call builds it."""
        form: Forward | None = self._held.get(attention)
        if form is None:
            with self.lock:
                form = self._held.get(attention) or FORWARDS[attention](self.model())
                self._held[attention] = form
        return form

    def defect(self, attention: str) -> str | None:
        """Return the defect that the self-test finds in a form, or None; results are kept until the process ends."""
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
    """A model in a configuration (device, precision, attention) that passed the self-test, and those that failed."""

    shared: SharedModel
    attention: str
    failures: tuple[Attempt, ...]


# The dictionary holds weak references, so the weights are freed with their last user.
def share(folder: ModelFolder, head: str, placement: Placement) -> SharedModel:
    """Return the shared weights of a model on a device; nothing is loaded yet."""
    key = (str(folder.path), folder.revision, head, placement)
    with _sharing:
        found = _shared.get(key)
        if found is None:
            _shared[key] = found = SharedModel(folder, head, placement)
        return found


def open_model(folder: ModelFolder, head: str, placement: Placement, attention: str) -> Running:
    """Open a model in the first configuration that passes the self-test: the wanted form, then safer ones."""
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
        f"{folder.name} fails the self-test in every configuration: {'; '.join(map(str, failures))}; the weights may "
        "be damaged (fetch the model again), or this version of torch or transformers is broken here (install another)"
    )


def forms_from(attention: str) -> list[str]:
    """Return the names of a form of the forward pass and its fallbacks, in the order in which they are tried."""
    names = list(FORWARDS)
    return list(dict.fromkeys([*names[names.index(attention) :], "reference"]))


def exhausted(shared: SharedModel) -> ModelError:
    """Return the error for a device whose memory is too small for one row."""
    placement = shared.placement
    return ModelError(
        f"{shared.folder.name}: the memory of {placement.device} is too small for a single row; shorten the "
        f"texts (max_length), {memory.remedy(placement.device, placement.precision)}"
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
