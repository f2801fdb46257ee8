"""Inbound authentication: which caller calls an agent, and whether its token is enough.

- ``auth_gate``: the ASGI middleware that answers 401, 403 and 429.
- ``inbound_auth``: the verifier and rules that all agents of a fleet share.
- ``static_tokens``, ``jwt`` and ``issuer_keys``: the two kinds of tokens and the keys of issuers.
- ``public_calls``: the health check calls that need no token.
- ``auth_challenge``, ``resource_metadata``: what a client that is refused gets in order to do better.
"""
