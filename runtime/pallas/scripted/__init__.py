"""The offline model: an OpenAI chat-completions server that answers from a script, without key or network.

``script_file`` reads a script into the values of ``script_rules``, ``template`` fills in its texts,
``scripted_conversation`` parses a request, ``openai_wire`` writes answers, and ``scripted_server`` serves
them. It is imported only when a project uses ``scripted:``.
"""
