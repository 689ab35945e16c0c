"""Driving one run: effects are performed, and what comes of them is handed to the run's next turn."""
