"""Who calls and what they may do: identities, grants, bearer leases and the leak test of bearers."""
