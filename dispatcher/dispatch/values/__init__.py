"""Values of the rules: what is declared, positions, the view of a server, and budgets of waiting."""
