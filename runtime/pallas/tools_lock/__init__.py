"""``tools.lock``: what each MCP server says of its tools, as a project accepted it.

- ``surface`` is what a server says: instructions, tools, prompts, resources. ``live_surface`` asks for it.
- ``lock_file`` reads and writes the document. ``surface_changes`` compares, ``schema_change`` two schemas.
- ``findings`` has the rules for suspicious texts. ``tool_gate`` keeps from models what is not in the lock.
- ``lock_check`` compares all servers of a project, for the command line.
"""
