"""The commands of `foldlog`, one module for each noun."""
