"""What everything on the event loop uses: tasks, threads, slices of long work."""
