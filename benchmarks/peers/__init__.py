"""The peers: each is a program with its own virtual environment that runs workload A on request."""
