"""Driving one run: effects are performed, and their outcomes handed to the run's next turn."""
