"""Executors: in this process, or by durable workers. Both are consumers of the same log."""
