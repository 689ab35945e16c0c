"""The commands of `foldlog`, one module a noun."""
