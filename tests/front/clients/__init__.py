"""Real replication clients as judges: each reads rows with positions from a server, or from the front.

A judge has one interface (`readings.Client`). The tests read one history from a server twice, or from a server and from
the front, and compare the readings. Programs and libraries come from the package registries, into the cache folder.

    readings   what a judge reads: rows, transactions, positions; how two readings are compared
    history    the transactions under test, and the rows that each client must read
    judging    what holds for each client on any endpoint
    questions  the statements that a client sends; `python -m tests.front.clients` prints those of all clients
    installs   gets libraries of PyPI, npm and Maven Central
    lines      runs a client's program, and collects what it prints
    printed    reads the text of mysqlbinlog and mariadb-binlog
    binlog_tools, python_clients, java_clients, debezium, zongji, replicas    the clients
    programs/  programs that use a library as its documentation shows
"""
