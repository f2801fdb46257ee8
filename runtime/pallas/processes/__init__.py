"""How processes of a fleet begin: event loop, imports, environment, and programs run to their end."""
