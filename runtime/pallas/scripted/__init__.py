"""The offline model: answers OpenAI's chat-completions protocol by a script, with no key and no network.

Nothing of it is imported unless a project asks for it with ``scripted:``.
"""
