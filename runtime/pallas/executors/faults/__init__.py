"""Faults that are injected into the calls of models and tools: docs/scripted-model.md.

``fault_injection`` chooses and applies them, ``provider_failures`` are the answers of providers that fail.
"""
