"""Tests of those modules of the mirror that need no Spark."""
