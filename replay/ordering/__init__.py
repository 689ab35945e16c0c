"""Rules of order and comparisons: two traces side by side, and one under the monitor."""
