"""Workflows: runs without a model, whose code or table says which operations are wanted.

`facts` are what a decider asks for, `decisions` makes events of them, `places` says where an operation belongs.
"""
