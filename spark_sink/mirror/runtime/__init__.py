"""The application that applies the log to tables: its loop, its threads, and the works that they execute."""
