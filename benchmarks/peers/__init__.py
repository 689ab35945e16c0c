"""The peers: each is a program in an environment of its own that runs workload A on request."""
