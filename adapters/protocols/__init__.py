"""What the protocols in front of agents have in common: their callers, and how runs are started and answered."""
