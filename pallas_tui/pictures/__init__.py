"""Images: their sources, the accepted kinds, and how they become cells."""
