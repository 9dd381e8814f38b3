"""What goes into a step of the rules, and what comes out."""
