"""Character sets and collations of MySQL, converted to UTF-8."""
