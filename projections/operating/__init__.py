"""Views of a namespace for operators, beyond single runs: why a run waits, who holds what, and what it cost."""
