"""Loops: run something again and again, score it, feed back, until a stop condition holds."""
