"""The rules of which daemon leads, as one function `Leadership.step(event, now)` that returns effects."""
