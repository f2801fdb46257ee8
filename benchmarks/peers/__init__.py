"""Pallas beside other frameworks that serve agents; `docs/benchmarks.md` says what is compared, and how."""
