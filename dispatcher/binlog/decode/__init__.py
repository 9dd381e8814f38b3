"""The executor's path: converts delivered bytes to rows and values."""
