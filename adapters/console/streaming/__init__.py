"""The stream of changes: one connection for any number of topics, which goes on where it ended.

`feeds.py` follows families, `lists.py` the lists; both once for all viewers. `viewer.py` is one connection.
"""
