"""What can be measured, each part by a module of its own."""
