"""Tests that need servers which the others do not start; left out without `--server own` (`./x test --servers`)."""
