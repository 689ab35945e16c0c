"""The endpoints of the API, a module for each thing that they are about; each ends with its part of the table."""
