"""The ordering rules: the monitor checks one trace, the comparison two."""
