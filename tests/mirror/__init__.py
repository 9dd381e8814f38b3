"""Tests of the whole mirror: a real server, the daemon, and the job in a process of its own."""
