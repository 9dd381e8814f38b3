"""Which rows, statements and columns of the delivered bytes a stream has, by its options."""
