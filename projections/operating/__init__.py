"""What operators see of a namespace beyond single runs: why a run waits, who holds what, and what it cost."""
