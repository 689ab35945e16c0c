"""Forks: a new run that shares the history of another up to a revision."""
