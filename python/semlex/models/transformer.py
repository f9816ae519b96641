"""The transformer under the Qwen3 embedder and the Qwen3 reranker: token ids in, last-token hidden states out."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.errors import ConfigurationError, ModelError
from semlex.models import interruption
from semlex.models.device import check_names, place, require_torch
from semlex.models.forward import FORWARDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.models.device import Placement
    from semlex.models.tokenizing import TokenRows
    from semlex.models.weights import ModelFolder

logger = logging.getLogger(__name__)

# Rows shown in a message about many rows.
SHOWN_ROWS = 10
# Measured on two CPUs: batches of 16,384 tokens fall out of the cache and are 1.5 to 1.9 times slower than 4,096.
CPU_TOKEN_BUDGET = 4_096
GPU_TOKEN_BUDGET = 16_384


class Transformer:
    """A causal transformer that is loaded at first use.

    Args:
        folder: The model.
        head: ``none`` (the body alone), ``lm`` (a language model) or ``classifier`` (one label).
        purpose: What needs torch, for the message.
        device: ``mps``, ``cuda``, ``cpu`` or None.
        precision: ``float32``, ``bfloat16``, ``float16`` or None.
        batch_size: Most rows in a forward pass.
        token_budget: Most tokens in a forward pass, padding included; None for 4,096 on a CPU and 16,384 on a GPU. One
            row that is longer makes a pass of its own.
        attention: ``reference``: padded batches and torch's scaled dot product attention.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        ConfigurationError: A parameter is unknown or out of range.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        head: str,
        purpose: str,
        device: str | None,
        precision: str | None,
        batch_size: int,
        token_budget: int | None,
        attention: str,
    ) -> None:
        require_torch(purpose)
        check_names(device, precision)
        if attention not in FORWARDS:
            raise ConfigurationError(f"attn must be one of {', '.join(FORWARDS)}; found {attention!r}")
        if token_budget is not None:
            check_range("token_budget", token_budget, 128, 1 << 20)
        self.folder = folder
        self._head = head
        self._attention = attention
        self._requested = (device, precision)
        self._batch_size = batch_size
        self._token_budget = token_budget
        self._placement: Placement | None = None
        self._model: Any = None
        self._closed = False
        # One forward pass at a time: two would need twice the memory, and MPS is not safe with two.
        self._lock = threading.RLock()

    def last_hidden(self, rows: TokenRows) -> NDArray[np.float32]:
        """Runs the body (with its final norm) and takes the state of every row's last token.

        Args:
            rows: n rows of at least one token id.

        Returns:
            (n, hidden size), in the order of the rows. Rows that are not finite in half precision are computed again in
            float32, which the model then keeps.

        Raises:
            ModelError: The model cannot be loaded, or was closed.
        """
        with self._lock:
            model = self._load()
            states = np.empty((len(rows), model.config.hidden_size), dtype=np.float32)
            if not len(rows):
                return states
            self._fill(states, rows, np.arange(len(rows)))
            overflowed = np.flatnonzero(~np.isfinite(states).all(axis=1))
            if overflowed.size and self._placement is not None and self._placement.precision != "float32":
                logger.warning(
                    "%s: %d of %d rows overflowed in %s; the model now runs in float32",
                    self.folder.name,
                    overflowed.size,
                    len(rows),
                    self._placement.precision,
                )
                # Read again rather than widened: the weights themselves may have overflowed.
                self._requested = (self._placement.device, "float32")
                self._model = None
                self._load()
                self._fill(states, rows, overflowed)
            return states

    def head_rows(self, ids: tuple[int, int]) -> NDArray[np.float32]:
        """Reads the two rows of the output layer that a yes/no decision needs.

        Args:
            ids: Token ids of ``no`` and of ``yes``.

        Returns:
            (2, hidden size). A classifier with one label has only the difference of the two, so its first row is zero.

        Raises:
            ModelError: The model cannot be loaded, was closed, or its output layer has another shape.
        """
        with self._lock:
            model = self._load()
            if self._head == "classifier":
                label = model.score.weight.detach().float().cpu().numpy()
                if label.shape[0] != 1:
                    raise ModelError(f"{self.folder.name} is a classifier with {label.shape[0]} labels; expected 1")
                return np.concatenate([np.zeros_like(label), label])
            weight = model.get_output_embeddings().weight.detach()
            if max(ids) >= weight.shape[0]:
                raise ModelError(
                    f"{self.folder.name}: its tokenizer knows token {max(ids)}, its output layer ends at "
                    f"{weight.shape[0]}; the two files do not belong together, fetch the model again"
                )
            rows: NDArray[np.float32] = weight[list(ids)].float().cpu().numpy()
            return rows

    def close(self) -> None:
        """Releases the model and the device's memory; a second call does nothing."""
        with self._lock:
            self._closed = True
            if self._model is None:
                return
            self._model = None
            import torch  # noqa: PLC0415 (loaded already)

            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            if torch.backends.mps.is_available():
                torch.mps.empty_cache()

    def _fill(self, states: NDArray[np.float32], rows: TokenRows, which: NDArray[np.int64]) -> None:
        on_cpu = self._placement is None or self._placement.device == "cpu"
        budget = self._token_budget or (CPU_TOKEN_BUDGET if on_cpu else GPU_TOKEN_BUDGET)
        forward = FORWARDS[self._attention](self._model)
        for batch in forward.batches(rows.select(which), token_budget=budget, max_rows=self._batch_size):
            interruption.check()
            states[which[batch.rows]] = forward.run(batch)

    def _load(self) -> Any:
        if self._closed:
            raise ModelError(f"{self.folder.name} was closed; make a new one")
        if self._model is None:
            import torch  # noqa: PLC0415 (seconds, and not in the base install)
            import transformers  # noqa: PLC0415

            self._placement = place(*self._requested)
            kinds = {
                "none": transformers.AutoModel,
                "lm": transformers.AutoModelForCausalLM,
                "classifier": transformers.AutoModelForSequenceClassification,
            }
            screen: Any = transformers.logging
            shown = screen.is_progress_bar_enabled()
            screen.disable_progress_bar()  # reading takes a second or two; the bar would stay on the screen
            try:
                model, report = kinds[self._head].from_pretrained(
                    str(self.folder.path),
                    dtype=getattr(torch, self._placement.precision),
                    attn_implementation="sdpa",
                    use_safetensors=True,
                    trust_remote_code=False,
                    local_files_only=True,
                    output_loading_info=True,
                )
            except Exception as error:  # four libraries take part, and each has errors of its own
                raise ModelError(
                    f"{self.folder.name} cannot be loaded from {self.folder.path} ({type(error).__name__}); "
                    "the folder must hold config.json, tokenizer.json and *.safetensors of a Qwen3 model; "
                    "fetch it again"
                ) from error
            finally:
                if shown:
                    screen.enable_progress_bar()
            # transformers fills weights that it does not find with random numbers, and only warns.
            if report["missing_keys"]:
                raise ModelError(
                    f"{self.folder.name}: {len(report['missing_keys'])} weights are missing from {self.folder.path} "
                    f"(the first is {min(report['missing_keys'])}); is it another kind of model? If not, fetch it "
                    "again"
                )
            self._model = model.eval().to(self._placement.device)
        return self._model


def check_config(folder: ModelFolder, max_length: int) -> int:
    """Checks that a folder holds a Qwen3 model that can read texts of a length.

    Args:
        folder: The model.
        max_length: Most tokens of a text.

    Returns:
        The hidden size.

    Raises:
        ModelError: Another kind of model.
        ConfigurationError: The model has fewer positions than ``max_length``.
    """
    config = folder.read_json("config.json")
    hidden, positions = config.get("hidden_size"), config.get("max_position_embeddings", max_length)
    if config.get("model_type") != "qwen3" or not isinstance(hidden, int) or not isinstance(positions, int):
        raise ModelError(f"{folder.name} is not a Qwen3 model (config.json: model_type); choose another model")
    if max_length > positions:
        raise ConfigurationError(f"max_length must be from 128 to {positions} for {folder.name}; found {max_length}")
    return hidden


def check_range(name: str, value: object, low: int, high: int) -> None:
    """Checks a whole number.

    Args:
        name: Name of the parameter.
        value: Its value.
        low: Smallest that is allowed.
        high: Largest that is allowed.

    Raises:
        ConfigurationError: Naming parameter, range and actual value.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{name} must be a whole number from {low} to {high}; found {type(value).__name__}")
    if not low <= value <= high:
        raise ConfigurationError(f"{name} must be from {low} to {high}; found {value}")


def shown_rows(rows: Sequence[int]) -> str:
    """The first rows of a list, for a message: ``rows 3, 5, 8``."""
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"rows {', '.join(map(str, rows[:SHOWN_ROWS]))}{more}"
