"""Traces and archives: a family's commits, as stored in a log or a file, and the recording read from them."""
