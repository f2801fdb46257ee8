"""The command line of Pallas.

``app`` defines the commands with typer. Each command has a module of its name (``serve``, ``check``,
``chat``, ``bridge``, ``get``, ``apply``, ...), which ``app`` imports only when the command runs. The work of
the larger commands is in packages: ``chat_client`` holds the conversation of `pallas chat`, ``resources`` the
commands that read and change a fleet over its REST API, ``bearer_check`` the leak test of
`pallas check bearer`. ``served_fleet`` runs a fleet on its own thread, for `pallas serve` and the commands
that start one; ``exit_status`` names how that ends, also for commands that import no fleet.
"""
