"""Sessions: leases on threads, as the bridge opens them (SPEC 7.2, 7.4, DR-9..DR-20)."""

from .sessions import Admission, DelegationOutcome, Sessions

__all__ = ["Admission", "DelegationOutcome", "Sessions"]
