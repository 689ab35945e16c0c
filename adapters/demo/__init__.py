"""The demonstration: one agent on two executors, a worker killed in between, both traces compared."""
