"""Tasks, threads and time slices for all code on the event loop."""
