"""Callers and what they may do.

``grants`` decides what a principal may do (``rbac:``), for every surface. ``identity`` makes the principal of
a token that no one checked, and says which conversations it may continue. ``bearer_lease`` lends a caller's
token to one run; ``sent_credential`` decides which requests carry it. The language
of grants is in ``pallas.model.grant_rules``.
"""
