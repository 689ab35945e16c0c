"""The canonical form: the events of a trace in their order, with places in the stead of ids and times."""
