"""The connections to model providers, which all model calls of one event loop share.

``provider_connections`` owns an HTTP client for each provider and credential, ``aiohttp_transport`` sends its
requests. What hands the clients to the libraries of providers is a seam of the executor that uses them.
"""
