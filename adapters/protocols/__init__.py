"""The common parts of the protocols in front of agents: callers, and how runs are started and answered."""
