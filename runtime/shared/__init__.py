"""Resources that runs share: slots, circuit breakers, sessions, memory in the log."""
