"""`make rehearse`: a rolling update of the replicas of compose.yaml under load, without a container engine.

- ``deployment``: PostgreSQL, three replicas and HAProxy as processes of this machine.
- ``callers``: who sends messages through HAProxy meanwhile, and sends again what may be sent again.
- ``verdict``: what must hold at the end.
"""
