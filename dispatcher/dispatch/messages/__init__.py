"""The inputs and the effects of a step of the rules."""
