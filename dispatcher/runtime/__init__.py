"""The event loop's side: tasks that execute the effects of the rules."""
