"""The rules of dispatching. They are pure and deterministic: `Client.step` gets an input and the time, and returns
effects."""
