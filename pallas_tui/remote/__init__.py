"""A fleet that runs elsewhere, seen and controlled over its control API; nothing of the screen in here."""
