"""The Grafana dashboard and its provisioning."""
