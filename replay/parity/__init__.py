"""Parity: runs the same agent on several executors, with the same inputs, and compares the traces."""
