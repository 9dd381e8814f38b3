"""The meaning of each setting of the daemon, for the reference. The keys are paths; `NAME` is a name that the user
chooses, `[]` an element of a list."""

from __future__ import annotations

_SAME = "Consumers that share a connection must have equal values."

DAEMON = {
    "defaults.max_bytes_to_merge": "Dispatchers this close to each other in the log are merged. "
    f"{_SAME}",
    "defaults.max_bytes_in_all_queues": "Memory of all queues of the connection together; 0: no "
    f"common limit. {_SAME}",
    "defaults.failover_wait_seconds": "How long another host of `mysql` has to reach the "
    f"consumers' positions. {_SAME}",
    "defaults.max_bytes_in_binlog_dispatcher_buffer": "Received bytes that are queued at once. "
    f"{_SAME}",
    "defaults.max_flush_milliseconds_in_binlog_dispatcher": "Longest time for which received "
    f"events wait while the server keeps sending. {_SAME}",
    "defaults.heartbeat_milliseconds": "How often an idle server sends a heartbeat. Without a "
    f"byte for three of them the connection is lost. {_SAME}",
    "defaults.max_bytes_in_binlog_queue": "Unacknowledged bytes in memory; a single larger "
    "transaction goes to disk",
    "defaults.max_milliseconds_to_wait_in_binlog_queue": "For how long in total the other "
    "consumers of the connection wait while this consumer's queue is full; refilled at 5 % of the "
    "elapsed time",
    "defaults.on_queue_full": "After that time: `detach` lets the others go on without the "
    "consumer; with `wait` they wait without a limit",
    "defaults.on_purged": "If the server has purged what the consumer needs next: `fail` stops "
    "it, `latest` goes on at the end of the log, in a new epoch",
    "defaults.assume_current_schema": "If the log does not name columns and the table may have "
    "changed since: use its current columns instead of stopping ([metadata.md](metadata.md))",
    "defaults.use_binlog_client": "false: the consumer has a connection of its own",
    "defaults.max_seconds_between_markers": "Least time between two markers; a marker moves a "
    "reader past transactions without data for it",
    "defaults.mqtt.commits": "Publish a message for each batch of transactions "
    "([mqtt.md](mqtt.md))",
    "consumers.NAME.mysql": "The server, or several for failover, `user@host1:port,host2:port`, "
    "tried in this order; port 3306 if left out. Either `mysql` or `files` "
    "([sources.md](sources.md))",
    "consumers.NAME.files.path": "A folder of binlog files, read instead of a server "
    "([files.md](files.md))",
    "consumers.NAME.files.prefix": "The file names before the number, if the folder contains "
    "several logs",
    "consumers.NAME.files.follow": "false: stop at the end of the newest file",
    "consumers.NAME.password": "The account's password; better `password_file`, or `${NAME}` for "
    "an environment variable",
    "consumers.NAME.password_file": "A file that contains the password",
    "consumers.NAME.tls.mode": "As MySQL's `--ssl-mode`",
    "consumers.NAME.tls.ca": "The authority that signed the server's certificate, for the two "
    "verify modes; without it the system's authorities",
    "consumers.NAME.tls.cert": "The daemon's certificate; needs mode `required` or stricter",
    "consumers.NAME.tls.key": "The key of `cert`",
    "consumers.NAME.tls.server_public_key": "The server's RSA key, with which the password is "
    "encrypted without TLS",
    "consumers.NAME.tls.allow_public_key_retrieval": "Take an unverified key that the server sends",
    "consumers.NAME.databases": "Names, or shell-style patterns "
    "([operating.md](operating.md#databases-and-tables))",
    "consumers.NAME.tables": "`database.table`, names or patterns; without it all tables of the "
    "databases",
    "consumers.NAME.exclude_tables": "Tables that are left out of these",
    "consumers.NAME.start": "Where to begin without a stored position: `latest`, `earliest`, "
    "`{gtid: SET}`, `{file: binlog.000042, offset: 4}`, `{timestamp: 2026-11-21T12:00:00Z}`",
    "api.max_connections": "Open connections; at the limit the one that has been idle longest is "
    "closed",
    "api.max_polls_per_consumer": "Open polls of a consumer with one token; with all tokens "
    "twice as many ([http-api.md](http-api.md#shares))",
    "api.max_answers_per_consumer": "Answers of `binlog` that are still being sent, of a consumer "
    "with one token; with all tokens twice as many",
    "api.max_bytes_in_request": "Size of a request's body",
    "api.header_timeout_seconds": "Time for the headers of a request to arrive",
    "api.body_timeout_seconds": "Time for the body to arrive, after that",
    "api.write_timeout_seconds": "Time for a reader to receive the next 1 MiB of an answer; then "
    "the connection is closed",
    "api.listen": "The address of the API and of the page; other than loopback needs `tokens`. "
    "Port 0: any free port",
    "api.hosts": "Accepted `Host` headers besides the address, without ports "
    "([http-api.md](http-api.md#host-and-origin))",
    "api.proxies": "Addresses and networks of the proxies before the daemon, whose `X-Forwarded-For` and "
    "`X-Forwarded-Proto` are believed ([http-api.md](http-api.md#behind-a-proxy))",
    "api.tokens[].token": "A bearer token of at least 16 characters",
    "api.tokens[].token_file": "A file that contains the token",
    "api.tokens[].consumers": "`all`, or the names of the consumers that the token is valid for",
    "api.tokens[].scopes": "What it allows ([http-api.md](http-api.md#tokens-and-scopes)); "
    "without it `read` and `acknowledge`, and `metrics` if `consumers` is `all`",
    "api.open": "What needs no token",
    "api.tls.cert": "The certificate of the API, with the chain; a section `tls` makes it HTTPS",
    "api.tls.key": "The key of `cert`",
    "state.path": "The SQLite file with the positions, on a local disk; one daemon per file",
    "state.max_bytes_in_spill": "Files beside it for transactions that are larger than their "
    "queues, of all consumers",
    "state.max_bytes_in_prepared": "Rows of prepared XA transactions, of all consumers",
    "log.level": "The least severe lines that are written",
    "log.format": "`console` for people, `json` for programs: an object per line",
    "mqtt.url": "The broker; `mqtts://host:port` for TLS. Without the section nothing is published",
    "mqtt.tls.ca": "The authority that signed the broker's certificate; without it the system's "
    "authorities",
    "mqtt.tls.cert": "The daemon's certificate",
    "mqtt.tls.key": "The key of `cert`",
    "mqtt.user": "The user at the broker",
    "mqtt.password": "The password of `user`",
    "mqtt.password_file": "A file that contains the password",
    "mqtt.name": "Of this daemon, in topics and in the client's identifier; without it the name "
    "of the host",
    "mqtt.client_id": "The client's identifier; `{name}` stands for `name`",
    "mqtt.topic_prefix": "What all topics begin with",
    "mqtt.qos": "Of all messages",
    "mqtt.protocol": "The version of MQTT",
    "mqtt.keepalive_seconds": "A daemon that is cut off is offline after one and a half of this",
    "mqtt.status_seconds": "How often statuses that changed are published",
    "mqtt.max_queued_messages": "Events, and commits, that wait for the broker; the oldest are "
    "dropped",
}
