"""The daemon's settings, from YAML files, the environment and the command line, as frozen values.

`source` reads the settings and records where each value was set. `model` validates them. `load` uses both modules, and
reports all errors together.
"""
