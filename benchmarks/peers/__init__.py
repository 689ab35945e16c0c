"""What users would pick instead: each a program in an environment of its own, that does workload A when told to."""
