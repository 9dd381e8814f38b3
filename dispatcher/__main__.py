"""`python -m dispatcher` is `binlog-dispatcher`."""

from dispatcher.cli import main

if __name__ == "__main__":
    main()
