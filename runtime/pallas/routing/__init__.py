"""Chooses the agent that answers a message, for routers and ``pallas route``.

``choice`` decides among candidates by capability, by examples or by a model's answer, and says why.
``route_prompt`` is the prompt for the model, ``similarity`` compares texts by their words.
"""
