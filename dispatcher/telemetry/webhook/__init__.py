"""What the daemon sends to a webhook: a signed POST for each event. docs/webhook.md describes the requests."""
