"""Speed, as ratios to a bound that is measured in the same run. `python -m benchmarks`; never part of the tests."""
