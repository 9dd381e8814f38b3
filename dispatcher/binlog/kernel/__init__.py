"""Compiled kernels: how they are declared, and the primitives that all of them use."""
