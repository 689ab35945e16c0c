"""Tables that users write: where they are found, and how they are read."""
