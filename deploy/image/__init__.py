"""The container images, and a program that runs the steps of the Dockerfile without a container engine."""
