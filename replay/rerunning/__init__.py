"""Rerunning: runs a stored run again with the recorded answers of its models, tools and functions."""
