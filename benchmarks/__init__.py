"""Measure speed (`python -m benchmarks`), as ratios to a bound measured in the same run. Never part of the tests."""
