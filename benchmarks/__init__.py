"""Figures of docs/figures.md, measured now, as ratios against a peer in the same run."""
