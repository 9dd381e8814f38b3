"""Runs one client: executes the effects of its rules, and lets the calls of its readers wait for transactions."""
