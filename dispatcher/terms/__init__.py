"""The daemon's terms as the leader: what runs during a term, which object answers readers, and what the daemon
publishes."""
