"""Agents as stored records: their versions in the log, and the check against what workers have."""
