"""Burying: runs that are over are erased on purpose, with a tombstone that says so for ever (W48 to W53)."""
