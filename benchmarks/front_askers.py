"""Clients of the front that ask a question again and again, each over a connection of its own, until standard input is
closed. Then the program prints as JSON how many questions were answered.

`python -m benchmarks.front_askers PORT USER TOKEN COUNT QUESTION`: COUNT clients.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.front.attacker import Attacker


def main(port: str, user: str, token: str, count: str, question: str) -> int:
    ended = threading.Event()

    def ask(_: int) -> int:
        answered = 0
        with Attacker(int(port)).enter(user, token) as client:
            while not ended.is_set():
                client.ask(question)
                answered += 1
        return answered

    with ThreadPoolExecutor(int(count)) as pool:
        asking = [pool.submit(ask, number) for number in range(int(count))]
        print("asking", flush=True)
        sys.stdin.read()
        ended.set()
        print(json.dumps({"answered": sum(each.result() for each in asking)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
