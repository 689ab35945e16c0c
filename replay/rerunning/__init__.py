"""Rerunning: a stored run again, with the recorded answers of models, tools and functions."""
