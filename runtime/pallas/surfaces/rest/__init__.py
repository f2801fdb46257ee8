"""The REST API of a fleet, below ``/api/v1``: agents and their configuration, threads, runs, and chat.

- ``rest_app`` puts it together and is the module that imports FastAPI; ``endpoints`` lists the endpoints
  and the grant that each needs; ``route_table`` adds the checks to each route.
- ``chat_routes``, ``thread_routes``, ``run_routes``, ``task_routes``, ``question_routes``,
  ``resource_routes``, ``cost_routes``, ``limit_routes`` and ``replica_routes`` are the routes.
- ``request_models``, ``response_models`` and ``run_models`` are the wire format; ``chat_chunks`` and
  ``chunk_stream`` the SSE stream.
- ``rest_runs``, ``run_recall`` and ``run_replay`` start runs and find them again; ``run_answers`` answers
  with them.
- ``rest_principal``, ``http_faults`` and ``request_body`` handle callers, errors and bodies.
"""
