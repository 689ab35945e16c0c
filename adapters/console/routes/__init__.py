"""The endpoints of the API, one module per subject; each module ends with its part of the table of routes."""
