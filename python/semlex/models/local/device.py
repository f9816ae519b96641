"""Where a model runs and in which precision: one policy for embedders and rerankers.

=========================== ========== =====================================================================
device                      precision  why
=========================== ========== =====================================================================
CUDA, compute capability 8+ bfloat16   the precision that the models were trained in
CUDA, older                 float16    no bfloat16 units; float16 may overflow, so the model widens itself to
                                       float32 when it does
MPS, torch 2.13 or newer    bfloat16   half the memory
MPS, older torch            float32    there, causal attention in half precision lets later tokens leak into
                                       earlier ones without an error
CPU with AMX, AVX512-BF16   bfloat16   2 to 4 times faster than float32
any other CPU               float32    bfloat16 would be emulated
=========================== ========== =====================================================================

transformers 5 loads bfloat16 everywhere by default, so the precision is always given. A model starts with this table;
if the self-test in `semlex.models.local.shared_weights` fails, it uses a safer setting.
"""

from __future__ import annotations

import ctypes.util
import logging
import os
import platform
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from semlex.errors import ConfigurationError, MissingExtraError, ModelError
from semlex.models.files import ModelFolder, find_cached, quiet_transformers

logger = logging.getLogger(__name__)

DEVICES = ("mps", "cuda", "cpu")
PRECISIONS = ("float32", "bfloat16", "float16")
MPS_HALF_PRECISION_FROM = (2, 13)  # first torch whose causal attention is right in half precision on MPS
BFLOAT16_FROM_CAPABILITY = 8  # compute capability sm80


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model runs: ``mps``, ``cuda`` or ``cpu``, in ``float32``, ``bfloat16`` or ``float16``."""

    device: str
    precision: str
    reason: str = field(default="", compare=False)


def require_torch(purpose: str) -> None:
    """Check that the packages of the ``torch`` extra are installed, without importing them."""
    for package in ("torch", "transformers", "tokenizers", "safetensors"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "torch", purpose)


def has_accelerator() -> bool:
    """Return whether torch can use a GPU; torch is slow to import, so it is imported only if a driver is found."""
    return find_spec("torch") is not None and _driver_in_sight() and automatic_device() != "cpu"


def automatic_device() -> str:
    """Return the best device of this machine: MPS, else CUDA, else the CPU. Imports torch."""
    return next(device for device in DEVICES if _is_available(device))


def choose_placement(device: str | None, precision: str | None) -> Placement:
    """Return where a model runs, in a given precision or in the precision of the table above; imports torch."""
    check_names(device, precision)
    chosen = automatic_device() if device is None else device
    if not _is_available(chosen):
        chosen = automatic_device()
        logger.warning("device %r is not available here; using %r", device, chosen)
    if precision is None:
        return Placement(chosen, *_automatic_precision(chosen))
    if chosen == "mps" and precision != "float32" and torch_version() < MPS_HALF_PRECISION_FROM:
        raise ConfigurationError(
            f"dtype={precision!r} on MPS needs torch 2.13 or newer (in older versions, later tokens leak into "
            "earlier ones); upgrade torch or use dtype='float32'"
        )
    return Placement(chosen, precision, "as configured")


def check_names(device: str | None, precision: str | None) -> None:
    """Refuse an unknown device or precision, without importing torch."""
    for name, value, allowed in (("device", device, DEVICES), ("dtype", precision, PRECISIONS)):
        if value is not None and value not in allowed:
            raise ConfigurationError(f"{name} must be one of {', '.join(allowed)} or None; got {value!r}")


def automatic_obstacle(model: str, device: str | None) -> str | None:
    """Return why this transformer is not used by default on this machine, or None; cheap checks come first."""
    if find_cached(model) is None:
        return f"{model} is not in the local cache"
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            return f"{model} is cached, but the package {package} is missing: pip install 'semlex[torch]'"
    if device == "cpu" or not has_accelerator():
        return f"{model} is cached, but slow without a GPU"
    return None


def _driver_in_sight() -> bool:
    system = platform.system()
    if system == "Darwin":
        return platform.machine() == "arm64"
    if system == "Windows":
        return ctypes.util.find_library("nvcuda") is not None
    # NVIDIA, AMD (ROCm presents itself as CUDA), and the GPU of a Windows host.
    return any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def _is_available(device: str) -> bool:
    import torch  # noqa: PLC0415 (seconds, and not in the base install)

    if device == "mps":
        return torch.backends.mps.is_available()
    if device == "cuda":
        return torch.cuda.is_available()
    return True


def _automatic_precision(device: str) -> tuple[str, str]:
    """Return the precision of the table above for a device, and why."""
    import torch  # noqa: PLC0415 (seconds, and not in the base install)

    if device == "cuda":
        if torch.cuda.get_device_capability()[0] >= BFLOAT16_FROM_CAPABILITY:
            return "bfloat16", "the GPU computes in bfloat16, and the models were trained in it"
        return "float16", "the GPU has no units for bfloat16"
    if device == "mps":
        if torch_version() >= MPS_HALF_PRECISION_FROM:
            return "bfloat16", "half the memory of float32, and correct on MPS from torch 2.13"
        return "float32", "torch before 2.13 computes half precision wrongly on MPS"
    if units := bfloat16_units():
        return "bfloat16", f"this CPU has {' and '.join(units)}"
    return "float32", "this CPU would only emulate bfloat16"


def bfloat16_units() -> list[str]:
    """Return the names of this CPU's bfloat16 units; imports torch."""
    import torch  # noqa: PLC0415 (seconds, and not in the base install)

    # Not public, so a torch without them means float32: slower, never wrong.
    probes = {"AMX": "_is_amx_tile_supported", "AVX512-BF16": "_is_avx512_bf16_supported"}
    return [name for name, probe in probes.items() if getattr(torch.cpu, probe, bool)()]


def describe_devices() -> dict[str, str]:
    """Return one line about each device of this machine, by name, the best device first; imports torch."""
    import torch  # noqa: PLC0415 (seconds, and not in the base install)

    found = {}
    if _is_available("mps"):
        found["mps"] = f"{platform.machine()}, {_gibibytes(torch.mps.recommended_max_memory())} of memory for the GPU"
    if _is_available("cuda"):
        major, minor = torch.cuda.get_device_capability()
        memory = _gibibytes(torch.cuda.get_device_properties(0).total_memory)
        found["cuda"] = f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}, {memory}"
    units = ", ".join(bfloat16_units()) or "no units for bfloat16"
    found["cpu"] = f"{platform.machine()}, {torch.get_num_threads()} threads, {units}"
    return found


def _gibibytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def torch_version() -> tuple[int, int]:
    """Return major and minor version of torch."""
    import torch  # noqa: PLC0415 (seconds, and not in the base install)

    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


class TorchProcess:
    """Records whether this process, or one that it was forked from, has loaded a model with torch."""

    # Torch does not survive a fork: its threads and the contexts of devices stay in the parent.

    def __init__(self) -> None:
        self._used = False
        self._inherited = False

    def use(self) -> None:
        """Note that a model is about to be loaded."""
        self.check()
        self._used = True

    def check(self) -> None:
        """Raise an error in a process forked after a model was loaded: torch would wait for lost threads forever."""
        if self._inherited:
            raise ModelError(
                "this process was forked from one that had loaded a model with torch, which cannot be used after a "
                "fork: load the first model in the child (gunicorn: make the retriever without --preload, or in "
                "post_fork), or start processes with multiprocessing's method 'spawn'"
            )

    def after_fork(self) -> None:
        """Note, in a forked child, whether its parent had loaded a model with torch."""
        self._inherited |= self._used
        self._used = False


torch_process = TorchProcess()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=torch_process.after_fork)


def sentence_model(kind: str, folder: ModelFolder, placement: Placement, remedy: str, **options: Any) -> Any:
    """Load a model with a class of sentence-transformers from local safetensors; the model's own code is not run."""
    with quiet_transformers():
        import sentence_transformers  # noqa: PLC0415 (seconds, and not in the base install)
        import torch  # noqa: PLC0415 (as above)

        torch_process.use()
        try:
            return getattr(sentence_transformers, kind)(
                str(folder.path),
                device=placement.device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"dtype": getattr(torch, placement.precision), "use_safetensors": True},
                **options,
            )
        except Exception as error:  # several libraries take part, and each has errors of its own
            raise ModelError(
                f"{folder.name} cannot be loaded from {folder.path} ({type(error).__name__}); {remedy}"
            ) from error
