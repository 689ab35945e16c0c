"""What others implement: models, tools, runners, memory, knowledge, prices, tokens, evidence, executors.

Beside the ports lie the few helpers that every room may use: JSON values and schemas, patterns, suggestions.
"""
