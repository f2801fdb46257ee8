"""The agents of this fleet, one module or card each."""
