"""Runs that are over are undone: the plan of compensations, as a table, and the key under which it is started once."""
