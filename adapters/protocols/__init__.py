"""Shared by the protocols that expose agents: identifying callers, starting runs, answering approvals, streaming."""
