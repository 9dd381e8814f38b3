"""The event loop's side: tasks that execute what the rules of dispatching decide."""
