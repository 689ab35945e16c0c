"""The parts that can be measured, one module each."""
