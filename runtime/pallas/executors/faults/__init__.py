"""Faults that are injected into the calls of models and tools, as real ones would come.

docs/scripted-model.md#faults describes them.
``fault_injection`` chooses and applies them, ``provider_failures`` are the answers of providers that fail.
"""
