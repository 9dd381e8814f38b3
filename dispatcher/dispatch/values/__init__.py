"""Values of the rules: what is declared, positions, what a server says of itself, budgets of waiting."""
