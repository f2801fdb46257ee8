"""Which agent answers: the directory of agents a caller sees, and the choice among them."""
