"""The control API of a fleet, for holders of its tokens, on the port of its registry.

``control_api`` assembles it, ``operation_routes`` has a route for each operation of a fleet's port,
``event_stream`` sends events, ``log_files`` reads the log, ``responses`` has errors and body limits.
``control_tokens``, ``token_file`` and ``token_middleware`` make, store and check the tokens.
"""

from typing import Final

BASE: Final = "/api/v1/fleet"
"""The path of the control API; the rest of ``/api/v1`` is the REST API."""
