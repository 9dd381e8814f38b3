"""Everything that shares one connection key: the rules for all dispatchers and consumers together."""
