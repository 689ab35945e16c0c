"""Parity: the same run on several executors, with the same inputs and faults at the same places."""
