"""Versions of an agent: what one was made of, how it looks from outside, and how the next one differs."""
