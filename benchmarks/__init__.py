"""Figures of the README, measured now, as ratios against a peer in the same run."""
