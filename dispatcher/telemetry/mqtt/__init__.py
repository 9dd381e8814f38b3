"""What the daemon publishes over MQTT: statuses, events and commits. docs/mqtt.md describes the topics."""
