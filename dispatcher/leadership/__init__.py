"""Decides which of several daemons leads, with one function `Leadership.step(event, now)` that returns effects."""
