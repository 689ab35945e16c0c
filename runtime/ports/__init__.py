"""The ports, which others implement: models, tools, runners, memory, knowledge, prices, tokens, evidence, executors.

Next to them are the few helpers that every room may use: JSON values and schemas, patterns, suggestions.
"""
