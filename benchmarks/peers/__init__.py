"""Pallas beside other frameworks that serve agents; `docs/figures.md` says what is compared, and how."""
