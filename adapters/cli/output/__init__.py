"""The output of commands: tables, runs as they happen, and text that is safe for a terminal."""
