"""Benchmarks: the programs of a comparison are measured in turn, in one run, and compared by their medians.
`python -m benchmarks` runs them."""
