"""A family of runs as operators see it: a row for each stored event, and bars for everything that takes time."""
