"""What runs share: slots, circuit breakers, sessions, memory over the log."""
