"""Messages between handlers: frames, the rules for sending, and delivery.

``delivery`` is the entry point: one message goes in, its result comes out. ``message_run`` holds one run's
tree of ``frames``; ``reply_routing`` decides with ``send_rules`` where a handler's messages go; ``capacity``
bounds what runs and waits, ``handler_work`` owns the tasks. ``messaging_port`` declares what this package
needs from a fleet. ``message_log`` and ``message_events`` report messages to operators. ``todos`` are
watchers, ``bytes_replies`` reads replies of handlers that return bytes. A handler never names its own
sender: ``message_run`` sets it, and a forged ``<from>`` in a reply is ignored.
"""
