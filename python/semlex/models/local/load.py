"""Reads weights from a folder to a device: safetensors only, nothing executed, nothing filled with noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.errors import ModelError
from semlex.models.local import memory
from semlex.models.quiet_bars import import_bars

if TYPE_CHECKING:
    from semlex.models.files import ModelFolder
    from semlex.models.local.device import Placement


def load_weights(folder: ModelFolder, head: str, placement: Placement) -> Any:
    """Loads a model.

    Args:
        folder: The model.
        head: ``none`` (the body alone), ``lm`` (a language model) or ``classifier`` (one label).
        placement: Device and precision.

    Returns:
        The model of transformers, ready for forward passes.

    Raises:
        ModelError: The folder does not hold such a model, or the device has no room for it.
    """
    import_bars()
    import torch  # noqa: PLC0415 (seconds, and not in the base install)
    import transformers  # noqa: PLC0415

    kinds = {
        "none": transformers.AutoModel,
        "lm": transformers.AutoModelForCausalLM,
        "classifier": transformers.AutoModelForSequenceClassification,
    }
    screen: Any = transformers.logging
    shown = screen.is_progress_bar_enabled()
    screen.disable_progress_bar()  # reading takes a second or two; the bar would stay on the screen
    exhausted = False
    try:
        model, report = kinds[head].from_pretrained(
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
    finally:
        if shown:
            screen.enable_progress_bar()
    if exhausted:
        memory.give_back(placement.device)
        raise ModelError(
            f"{folder.name} in {placement.precision} does not fit into the memory of {placement.device}; close other "
            "models and programs, or use dtype='bfloat16', device='cpu' or a smaller model"
        )
    # transformers fills weights that it does not find with random numbers, and only warns.
    if report["missing_keys"]:
        raise ModelError(
            f"{folder.name}: {len(report['missing_keys'])} weights are missing from {folder.path} "
            f"(the first is {min(report['missing_keys'])}); is it another kind of model? If not, fetch it "
            "again"
        )
    return model
