"""The starters of runs besides callers: schedules."""
