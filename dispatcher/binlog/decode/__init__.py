"""The executor's path: delivered bytes to rows and values."""
