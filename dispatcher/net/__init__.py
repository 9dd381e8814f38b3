"""The network side: MySQL servers and the sockets that their logs come from. No rules live here."""
