"""Replay: the decision logic runs again over a stored run and has to decide what is recorded."""
