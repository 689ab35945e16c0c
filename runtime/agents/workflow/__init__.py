"""Workflows as users write them: functions, and the code that lets them go on over a log."""
