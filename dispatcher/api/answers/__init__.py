"""The bodies of requests and answers, problem documents, and answers that may be large."""
