"""Images: where they come from, what is taken, and how they become cells."""
