"""Reads weights from a folder to a device: safetensors only, nothing executed, nothing filled with noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.errors import ModelError
from semlex.models.local import memory
from semlex.models.quiet_bars import quiet_transformers

if TYPE_CHECKING:
    from semlex.models.files import ModelFolder
    from semlex.models.local.device import Placement

# Of transformers, by what stands on the model's body.
CLASSES = {
    "none": "AutoModel",
    "lm": "AutoModelForCausalLM",
    "classifier": "AutoModelForSequenceClassification",
}


def load_weights(folder: ModelFolder, head: str, placement: Placement) -> Any:
    """Loads a model."""
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
