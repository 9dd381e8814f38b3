"""The container images, and how their steps are run where no engine runs."""
