from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from semlex.errors import ConfigurationError
from semlex.models.local import device


def test_torch_is_not_asked_where_no_driver_is_in_sight(monkeypatch):
    monkeypatch.setattr(device, "_driver_in_sight", lambda: False)
    monkeypatch.setattr(device, "automatic_device", lambda: pytest.fail("torch was asked"))
    assert device.has_accelerator() is False


@pytest.mark.parametrize(("found", "expected"), [("cuda", True), ("mps", True), ("cpu", False)])
def test_a_driver_alone_is_no_gpu(monkeypatch, found, expected):
    monkeypatch.setattr(device, "_driver_in_sight", lambda: True)
    monkeypatch.setattr(device, "automatic_device", lambda: found)
    assert device.has_accelerator() is expected


@pytest.mark.parametrize(
    ("torch_version", "expected"), [("2.12.1", "float32"), ("2.13.0", "bfloat16"), ("3.0.0a1", "bfloat16")]
)
def test_precision_on_mps(monkeypatch, torch_version, expected):
    monkeypatch.setattr(torch, "__version__", torch_version)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert device.choose_placement(None, None) == device.Placement("mps", expected)
    assert device.choose_placement("mps", "float32") == device.Placement("mps", "float32")
    if expected == "float32":
        for half in ("float16", "bfloat16"):
            with pytest.raises(ConfigurationError, match=r"needs torch 2\.13 or newer"):
                device.choose_placement("mps", half)
    else:
        assert device.choose_placement("mps", "float16").precision == "float16"


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), "float16"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")])
def test_precision_on_cuda(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert device.choose_placement(None, None) == device.Placement("cuda", expected)


@pytest.mark.parametrize(
    ("amx", "avx512", "expected"),
    [(False, False, "float32"), (True, False, "bfloat16"), (False, True, "bfloat16"), (None, None, "float32")],
)
def test_precision_on_a_cpu(monkeypatch, amx, avx512, expected):
    for name, value in (("_is_amx_tile_supported", amx), ("_is_avx512_bf16_supported", avx512)):
        if value is None:
            monkeypatch.delattr(torch.cpu, name)
        else:
            monkeypatch.setattr(torch.cpu, name, lambda value=value: value)
    assert device.choose_placement("cpu", None) == device.Placement("cpu", expected)


def test_every_precision_has_a_reason(monkeypatch):
    for probe in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, probe, lambda: True)
    assert device.choose_placement("cpu", None).reason == "this CPU has AMX and AVX512-BF16"
    assert device.choose_placement("cpu", "float16").reason == "as configured"
    for probe in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, probe, lambda: False)
    assert device.choose_placement("cpu", None).reason == "this CPU would only emulate bfloat16"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for capability, reason in (((9, 0), "the models were trained in it"), ((7, 5), "has no units for bfloat16")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        assert device.choose_placement("cuda", None).reason.endswith(reason)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for version, reason in (("2.13.0", "correct on MPS from torch 2.13"), ("2.12.0", "wrongly on MPS")):
        monkeypatch.setattr(torch, "__version__", version)
        assert device.choose_placement("mps", None).reason.endswith(reason)


def test_a_place_is_the_same_whatever_the_reason():
    assert device.Placement("cpu", "float32", "a") == device.Placement("cpu", "float32", "b")
    assert len({device.Placement("cpu", "float32", "a"), device.Placement("cpu", "float32", "b")}) == 1


def test_devices_in_words(monkeypatch):
    assert list(device.describe_devices()) == ["cpu"]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 21 << 30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Big One")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 << 30))
    found = device.describe_devices()
    assert list(found) == ["mps", "cuda", "cpu"]
    assert "21.0 GiB" in found["mps"]
    assert found["cuda"] == "Big One, compute capability 9.0, 80.0 GiB"
    assert "threads" in found["cpu"]


@pytest.mark.parametrize(
    ("system", "machine", "present", "expected"),
    [
        ("Darwin", "arm64", [], True),
        ("Darwin", "x86_64", [], False),
        ("Linux", "x86_64", [], False),
        ("Linux", "x86_64", ["/dev/nvidiactl"], True),
        ("Linux", "x86_64", ["/dev/kfd"], True),
        ("Linux", "x86_64", ["/dev/dxg"], True),
    ],
)
def test_a_driver_in_sight(monkeypatch, system, machine, present, expected):
    monkeypatch.setattr(device.platform, "system", lambda: system)
    monkeypatch.setattr(device.platform, "machine", lambda: machine)
    monkeypatch.setattr(device.Path, "exists", lambda path: str(path) in present)
    assert device._driver_in_sight() is expected
