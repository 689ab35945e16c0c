"""The canonical form: the events of a trace in causal order, with places instead of ids and times."""
