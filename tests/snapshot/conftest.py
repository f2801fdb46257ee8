"""Every screen here is drawn in the same surroundings, and its pictures are compared."""

from support.looks import pictures as pictures
from support.surroundings import steady as steady
