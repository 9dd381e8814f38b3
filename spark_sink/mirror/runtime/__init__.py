"""The application that brings tables forward: its loop, its threads, and what they execute."""
