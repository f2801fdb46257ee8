"""Agents defined with fast-agent, run in this process.

Nothing here is imported until an agent of this kind starts: fast-agent takes more than a second to import.

- ``fastagent_executor`` runs turns; ``agent_loader`` and ``agent_definition`` make an agent from a module,
  a card or a definition.
- ``instance_pool``, ``instance_servers`` and ``instance_turn``: warm instances, their MCP servers, and one
  turn of one.
- ``providers``, ``providers_llm`` and ``providers_failover``: which model answers, and which replaces it
  after a failure; ``provider_params`` and ``params_seam`` write the parameters of a run into its requests.
- ``peer_tools``, ``peers_fleet`` and ``peers_seam``: other agents as tools.
- ``reimport``, ``import_thread``, ``preload`` and ``read_files``: the user's code
  is imported and reloaded.
- ``*_seam``: each wraps one part of fast-agent or the SDK that is not public API. A contract test fails
  when that part changes.
"""
