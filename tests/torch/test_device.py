from types import SimpleNamespace

import pytest
import torch

from semlex.errors import ConfigurationError
from semlex.models.local import device
from semlex.models.local.device import Placement, choose_placement
from tests.support.spies import answering


def test_an_accelerator_is_one_that_torch_finds_behind_a_driver(monkeypatch):
    for in_sight, found in ((False, None), (True, "cuda"), (True, "mps"), (True, "cpu")):
        answering(monkeypatch, device, _driver_in_sight=in_sight)
        monkeypatch.setattr(device, "automatic_device", lambda found=found: found or pytest.fail("torch was asked"))
        assert device.has_accelerator() is (found in {"cuda", "mps"})


def test_precision_on_mps(monkeypatch):
    answering(monkeypatch, torch.backends.mps, is_available=True)
    for version, expected, reason in (
        ("2.12.1", "float32", "wrongly on MPS"),
        ("2.13.0", "bfloat16", "correct on MPS from torch 2.13"),
        ("3.0.0a1", "bfloat16", "correct on MPS from torch 2.13"),
    ):
        monkeypatch.setattr(torch, "__version__", version)
        assert choose_placement(None, None) == Placement("mps", expected)
        assert choose_placement("mps", None).reason.endswith(reason)
        assert choose_placement("mps", "float32") == Placement("mps", "float32")
        for half in ("float16", "bfloat16"):
            if expected == "bfloat16":
                assert choose_placement("mps", half) == Placement("mps", half)
                continue
            with pytest.raises(ConfigurationError, match=r"needs torch 2\.13 or newer"):
                choose_placement("mps", half)


def test_precision_on_cuda(monkeypatch):
    answering(monkeypatch, torch.backends.mps, is_available=False)
    for capability, expected, reason in (
        ((7, 5), "float16", "has no units for bfloat16"),
        ((8, 0), "bfloat16", "the models were trained in it"),
        ((9, 0), "bfloat16", "the models were trained in it"),
    ):
        answering(monkeypatch, torch.cuda, is_available=True, get_device_capability=capability)
        assert choose_placement(None, None) == Placement("cuda", expected)
        assert choose_placement("cuda", None).reason.endswith(reason)


def test_precision_on_a_cpu(monkeypatch):
    for amx, avx512, expected, reason in (
        (False, False, "float32", "this CPU would only emulate bfloat16"),
        (True, False, "bfloat16", "this CPU has AMX"),
        (False, True, "bfloat16", "this CPU has AVX512-BF16"),
        (True, True, "bfloat16", "this CPU has AMX and AVX512-BF16"),
        (None, None, "float32", "this CPU would only emulate bfloat16"),
    ):
        if amx is None:  # as in older torch
            for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
                monkeypatch.delattr(torch.cpu, name)
        else:
            answering(monkeypatch, torch.cpu, _is_amx_tile_supported=amx, _is_avx512_bf16_supported=avx512)
        found = choose_placement("cpu", None)
        assert (found, found.reason) == (Placement("cpu", expected), reason)
        assert choose_placement("cpu", "float16").reason == "as configured"
    places = [Placement("cpu", "float32", reason) for reason in "ab"]  # the same whatever the reason
    assert (places[0] == places[1], len({*places})) == (True, 1)


def test_devices_in_words(monkeypatch):
    assert list(device.describe_devices()) == ["cpu"]
    answering(monkeypatch, torch.backends.mps, is_available=True)
    answering(monkeypatch, torch.mps, recommended_max_memory=21 << 30)
    answering(monkeypatch, torch.cuda, is_available=True, get_device_capability=(9, 0), get_device_name="Big One")
    answering(monkeypatch, torch.cuda, get_device_properties=SimpleNamespace(total_memory=80 << 30))
    found = device.describe_devices()
    assert list(found) == ["mps", "cuda", "cpu"]
    assert "21.0 GiB" in found["mps"]
    assert found["cuda"] == "Big One, compute capability 9.0, 80.0 GiB"
    assert "threads" in found["cpu"]


def test_a_driver_in_sight(monkeypatch):
    for system, machine, present, expected in (
        ("Darwin", "arm64", [], True),
        ("Darwin", "x86_64", [], False),
        ("Linux", "x86_64", [], False),
        *(("Linux", "x86_64", [path], True) for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")),
    ):
        answering(monkeypatch, device.platform, system=system, machine=machine)
        with monkeypatch.context() as patch:
            patch.setattr(device.Path, "exists", lambda path, present=present: str(path) in present)
            assert device._driver_in_sight() is expected, (system, machine, present)
