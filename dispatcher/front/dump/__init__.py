"""A dump for a replication client: its request, and the packets that are made of delivered bytes."""
