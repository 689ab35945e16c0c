"""Read the tables of the project's configuration file."""
