"""A transformer that ONNX Runtime runs: its file, its session, and small batches of texts."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex import _core
from semlex.errors import MissingExtraError, ModelError
from semlex.forks import drop, new_rlock, renew_after_fork
from semlex.models import cancellation
from semlex.models.files import ModelFolder, onnx_file
from semlex.models.local.fair_lock import FairLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


MAX_THREADS = 8  # small models gain nothing from more
# Tokens of a batch, padding included, and its texts.
# Texts go through the model longest first, in small batches: on a CPU larger ones are slower, because they do not fit
# into its cache.
TOKEN_BUDGET = 512
MAX_ROWS = 32
# Position embeddings of these begin behind the number of the padding token.
OFFSET_POSITIONS = frozenset({"camembert", "mpnet", "roberta", "xlm-roberta"})
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_QUANTISED_WHILE_RUNNING = b"DynamicQuantize"


def require_onnx(purpose: str) -> None:
    """Check that the packages of the ``onnx`` extra are installed, without importing them."""
    for package in ("onnxruntime", "tokenizers"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "onnx", purpose)


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts that went through the model together, and the model's outputs."""

    rows: NDArray[np.int64]  # (b,) numbers of the texts
    mask: NDArray[np.int64]  # (b, t) 1 for tokens, 0 for padding
    outputs: dict[str, NDArray[np.floating]]  # by name


class OnnxModel:
    """An ONNX file, loaded at first use; it computes one batch at a time, in the order of the calls."""

    def __init__(self, folder: ModelFolder, wanted_file: str | None, outputs: Sequence[str]) -> None:
        chosen = onnx_file(folder.path, wanted_file)
        if chosen is None or not (folder.path / chosen).is_file():
            there = ", ".join(sorted(path.name for path in folder.path.rglob("*.onnx"))) or "none"
            raise ModelError(
                f"{folder.name} has no ONNX file {wanted_file or 'with a known name'} in {folder.path} (there: {there})"
                "; name one: onnx:FOLDER#FILE, or fetch the model again"
            )
        self.folder, self.file = folder, chosen
        self._known_outputs = outputs
        config = folder.read_json("config.json")
        self._pad_id = _whole(config.get("pad_token_id")) or 0
        self._session: Any = None
        self._one_by_one = False
        self._closed = False
        self._inputs: dict[str, Any] = {}
        self.outputs: list[str] = []
        # A search takes its turn between the batches of a load.
        self._computing = FairLock()
        self._opening = new_rlock()
        renew_after_fork(self)

    def _after_fork(self) -> None:
        drop(self._session)  # whose threads stay in the parent
        self._session = None

    @property
    def where(self) -> str:
        """Return the path of the file, for messages."""
        return str(self.folder.path / self.file)

    @property
    def is_quantised(self) -> bool:
        """Return whether the file's int8 scales depend on the batch (dynamic quantization); loads the model."""
        self.load()
        return self._one_by_one

    def max_tokens(self, added: int) -> int | None:
        """Return the maximum tokens of a text besides `added` special ones; None if no file states a limit."""
        config = self.folder.read_json("config.json")
        limits = [
            _whole(self.folder.read_json("sentence_bert_config.json").get("max_seq_length")),
            _whole(self.folder.read_json("tokenizer_config.json").get("model_max_length")),
        ]
        positions = _whole(config.get("max_position_embeddings"))
        if positions is not None and config.get("model_type") in OFFSET_POSITIONS:
            positions -= self._pad_id + 1
        # tokenizer_config.json says a number of 31 digits if it knows none.
        known = [limit for limit in (*limits, positions) if limit is not None and limit < 1 << 31]
        return max(1, min(known) - added) if known else None

    def run(
        self, rows: Sequence[NDArray[np.int64]], types: Sequence[NDArray[np.int64]] | None = None
    ) -> Iterator[Batch]:
        """Run rows of token ids in batches; `types` are their token types, all 0 if not given."""
        self.load()
        lengths = np.array([row.size for row in rows], dtype=np.int64)
        most = 1 if self._one_by_one else MAX_ROWS
        plan = _core.plan_batches(lengths, token_budget=TOKEN_BUDGET, max_rows=most, padded=True)
        for start, end in zip(plan.boundaries[:-1], plan.boundaries[1:], strict=True):
            cancellation.check()
            chosen = plan.order[start:end]
            width = max(1, int(lengths[chosen].max()))
            ids = np.full((chosen.size, width), self._pad_id, dtype=np.int64)
            mask, kinds = np.zeros_like(ids), np.zeros_like(ids)
            for place, row in enumerate(chosen):
                size = max(1, int(lengths[row]))  # of an empty row the padding stands for a text
                ids[place, : lengths[row]] = rows[row]
                mask[place, :size] = 1
                if types is not None:
                    kinds[place, : lengths[row]] = types[row]
            yield Batch(
                chosen, mask, self._forward({"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds})
            )

    def close(self) -> None:
        """Release the model and its memory; a second call does nothing."""
        with self._computing, self._opening:
            self._closed = True
            self._session = None

    def load(self) -> None:
        """Load the file, unless it is loaded; refuse a file with unknown inputs or outputs."""
        with self._opening:
            if self._closed:
                raise ModelError(f"the model {self.folder.name} was closed; make a new one")
            if self._session is None:
                session = _session(self.where)
                self._inputs = {entry.name: self._input_dtype(entry) for entry in session.get_inputs()}
                self.outputs = [entry.name for entry in session.get_outputs() if entry.name in self._known_outputs]
                if not self.outputs:
                    names = ", ".join(entry.name for entry in session.get_outputs())
                    needed = " or ".join(self._known_outputs)
                    raise ModelError(f"{self.where} has the outputs {names}, but needs {needed}: {_ANOTHER_FILE}")
                self._one_by_one = _is_quantised_while_running(self.where)
                self._session = session

    def _input_dtype(self, entry: Any) -> Any:
        known = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        if entry.name not in known or entry.type not in _DTYPES:
            raise ModelError(
                f"{self.where} takes the input {entry.name} of type {entry.type}; only {', '.join(known)} of "
                f"int64 or int32 are supported: {_ANOTHER_FILE}"
            )
        fixed = [size for size in entry.shape if isinstance(size, int)]
        if fixed:
            raise ModelError(f"{self.where} takes batches of a fixed shape {entry.shape}; {_ANOTHER_FILE}")
        return _DTYPES[entry.type]

    def _forward(self, made: dict[str, NDArray[np.int64]]) -> dict[str, NDArray[np.floating]]:
        made["position_ids"] = np.broadcast_to(np.arange(made["input_ids"].shape[1]), made["input_ids"].shape)
        with self._computing:
            self.load()
            fed = {name: made[name].astype(dtype, copy=False) for name, dtype in self._inputs.items()}
            try:
                found = self._session.run(self.outputs, fed)
            except Exception as error:  # the runtime has a class of its own for each of its codes
                rows, tokens = made["input_ids"].shape
                raise ModelError(
                    f"{self.where} failed for {rows} texts of {tokens} tokens ({type(error).__name__}); is the "
                    f"file complete? Fetch the model again, or choose another"
                ) from error
        return dict(zip(self.outputs, found, strict=True))


_ANOTHER_FILE = "choose another file (onnx:FOLDER#FILE) or model; it must be an encoder with inputs of any size"


def _session(path: str) -> Any:
    import onnxruntime  # noqa: PLC0415 (not in the base install)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(MAX_THREADS, _usable_cores())
    options.inter_op_num_threads = 1
    # Threads that wait in a loop would take the cores from Postgres.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has a class of its own for each of its codes
        raise ModelError(
            f"{path} cannot be loaded by ONNX Runtime ({type(error).__name__}); is the file complete? "
            "Fetch the model again, or choose another"
        ) from error


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Such a model gets one text at a time: its scales depend on the whole batch, so a vector would depend on its
# neighbours.
def _is_quantised_while_running(path: str) -> bool:
    """Return whether operators of the file quantize dynamically, so that scales depend on the batch."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:  # noqa: PTH123
        return content.find(_QUANTISED_WHILE_RUNNING) >= 0


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
