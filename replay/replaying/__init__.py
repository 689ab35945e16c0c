"""Replay: runs the decision logic again over a stored run and reports the first decision that differs."""
