"""Tests of the pure rooms of the mirror: they start no Spark."""
