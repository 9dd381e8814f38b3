"""The daemon's settings, from YAML files, the environment and the command line, as frozen values.

`source` reads them and records where each value was set, `model` validates them, `load` combines both and reports all
errors together.
"""
