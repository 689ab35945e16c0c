"""The one write path of a run, and what is stored in the same batch: lanes, timers, keys, families."""
