"""Executors: one drives runs in this process, one hands them to durable workers. Both use the same log."""
