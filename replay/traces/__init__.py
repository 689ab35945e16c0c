"""Traces and archives: what a log holds of a family, kept as a file, checked, and what was said in it."""
