"""Benchmarks: ratios measured in one run, alternating, medians. `python -m benchmarks`."""
