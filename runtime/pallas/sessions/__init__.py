"""Sessions: leases on threads, as the bridge opens them (DR-9..DR-20).

``sessions`` is the entry: create, prompt, cancel, close, delegate, and the expiry of old sessions. ``lease``
is one open session, ``session_table`` holds all of them and ends each one once. ``session_opener`` opens and
reopens, ``session_prompt`` runs one prompt. ``stored_sessions`` are those in the ledger, ``session_lookup``
finds them there and in memory. ``session_metadata`` reads a session's metadata, ``session_hooks`` calls
executors that implement ``SessionHooks``, ``session_faults`` has the Faults. ``thread_access`` reads and
changes durable threads for one principal.
"""

from .sessions import DelegationOutcome, SessionAdmission, Sessions

__all__ = ["DelegationOutcome", "SessionAdmission", "Sessions"]
