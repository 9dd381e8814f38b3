"""The daemon in its terms as the leader: what runs during a term, who serves readers, and what is published of it."""
