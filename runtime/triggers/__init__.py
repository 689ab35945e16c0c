"""What starts runs besides callers: schedules."""
