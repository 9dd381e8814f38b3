"""Putting the daemon to work: setup of a machine, image, systemd unit, Kubernetes manifests, and the demo."""
