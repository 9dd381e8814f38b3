"""Reads and validates settings from YAML files, environment variables and the command line."""
