"""Agents, LLMs, secrets, projects, threads, runs and tasks on the command line.

``resource_kinds`` has the words for kinds, ``fleet_requests`` finds the fleet and turns refusals into exit
statuses, ``offline_api`` is the API of a project whose fleet does not run. The commands: ``resource_lists``
(`get`), ``resource_details`` (`describe`), ``apply_documents``, ``create_resources``, ``task_commands``,
``route_preview`` and ``client_config`` (`connect`). ``document_reader`` and ``document_checks`` read the
documents of `pallas apply`; ``text_output`` and ``text_tables`` print.
"""
