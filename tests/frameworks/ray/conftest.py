"""A Ray of four workers on this machine, which all tests share."""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing leaves this machine
os.environ["RAY_AUTH_MODE"] = "disabled"  # else a token is written into the home folder
os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # Ray warns that it will change what happens without it

import shutil
import tempfile
from pathlib import Path

import pytest
import ray
import ray.data

from tests.support.folders import TEMPORARY


@pytest.fixture(scope="session", autouse=True)
def cluster():
    """The address of that Ray, for programs beside the tests."""
    folder = Path(tempfile.mkdtemp(prefix="semlex-ray-", dir=TEMPORARY))  # a socket's path must be short
    try:
        quiet = {"include_dashboard": False, "log_to_driver": False, "_node_ip_address": "127.0.0.1"}
        ray.init(num_cpus=4, object_store_memory=128 << 20, _temp_dir=str(folder), **quiet)
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
