"""The bridge: eight tools by which a client finds agents, leases them and gives them work (SPEC 7.2)."""
