"""Arrow arrays and types of decoded columns, and the error of a cell that cannot be decoded."""
