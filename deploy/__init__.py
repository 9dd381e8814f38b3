"""Deployment: setup of a machine, systemd unit, Kubernetes manifests, and the demo."""
