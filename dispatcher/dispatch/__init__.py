"""The rules of dispatching: pure and deterministic. Time and bytes go in, effects come out."""
