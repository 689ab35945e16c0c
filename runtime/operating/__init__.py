"""Answers to operators of a namespace: why runs wait, and who has its lanes, slots and workers."""
