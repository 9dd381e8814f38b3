"""The rules for all dispatchers and consumers of one connection key."""
