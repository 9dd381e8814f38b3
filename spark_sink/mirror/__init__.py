"""The mirror: a log of delivered bytes in the lake, and tables brought forward from it."""
