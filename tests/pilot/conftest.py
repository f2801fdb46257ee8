"""Every screen here is drawn in the same surroundings."""

from support.surroundings import steady as steady
