"""What commands print: tables, runs as they happen, and texts made harmless for a terminal."""
