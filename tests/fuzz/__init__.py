"""Fuzzing: run by hand (``make fuzz``), a small slice of it with the tests."""
