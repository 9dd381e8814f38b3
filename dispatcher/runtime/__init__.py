"""The code that runs on the event loop: tasks that execute the effects of the rules."""
