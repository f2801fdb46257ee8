"""Events, traces, recorded wire traffic, and the log.

``event_hub`` numbers every event and holds the last ones in a ring. ``trace_context`` is W3C Trace Context:
spans of runs and calls. ``step_record`` has the steps of runs, each an ``open_step`` until it is over, masked
before they are stored. ``wire_record`` stores the JSON-RPC traffic of the last runs, masked and bounded,
``wire_http`` taps it from HTTP requests, ``ring_store`` is the store below. ``log`` is the JSON log.
"""
