"""The stream of changes: one connection carries any number of topics, and a new one resumes where the last ended.

`feeds.py` follows families and `lists.py` follows lists, each once for all viewers. `viewer.py` is one connection.
"""
