"""Single events: their types, headers and bodies, and the files that contain them."""
