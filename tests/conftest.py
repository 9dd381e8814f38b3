"""What all tests share: the fixtures for real servers, and how hard hypothesis tries."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["tests.servers.plugin"]

# No deadline for a single example: it would measure the machine's other load. A failure prints how to repeat it.
settings.register_profile("fast", deadline=None, print_blob=True)
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
