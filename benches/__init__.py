"""Benchmarks: every figure beside a baseline in the same run, as a ratio."""
