"""Benchmarks: medians and ratios of programs that are measured in turn, in one run. `python -m benchmarks`."""
