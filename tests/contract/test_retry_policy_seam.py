"""Where fast-agent repeats requests: this fails when one of the places moves."""

import inspect

from fast_agent.llm.fastagent_llm import FastAgentLLM


def test_fast_agent_asks_these_functions_of_the_model_whether_and_when_it_repeats() -> None:
    source = inspect.getsource(FastAgentLLM._execute_with_retry)
    for place in (
        "if self._is_fatal_retry_error(e):",
        "if self._is_request_too_large(e):",
        "await self._wait_before_retry(e, attempt=attempt, retries=retries)",
    ):
        assert place in source
