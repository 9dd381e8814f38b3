"""The rules of dispatching, played: seeded histories of a client, its server, its network and its readers.

`play`: a seed becomes a history. `world`: what may happen in one. `rules`: what must hold after every step of it.
`histories`: the logs. `mutants`: each rule broken on purpose, to see that it is missed.
"""
