"""The connections to model providers, which all model calls of one event loop share, and what they answer.

``provider_connections`` owns an HTTP client for each provider and credential, ``aiohttp_transport`` sends its
requests. What hands the clients to the libraries of providers is a seam of the executor that uses them.
``checked_answer`` corrects what model servers send: ``chat_answer`` reads chat completions, whole or
streamed, ``responses_answer``, ``messages_answer`` and ``answer_dialects`` the other protocols, and
``call_arguments`` keeps a tool from being called whose arguments are cut or broken.
"""
