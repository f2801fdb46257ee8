"""How many requests the bridge takes at a time."""

from contextlib import ExitStack

import pytest

from pallas.model import Fault, FaultType
from pallas.sessions import SessionAdmission


def test_one_request_too_many_is_refused_and_may_come_again() -> None:
    # DR-19 X15
    limit = 50
    admission = SessionAdmission(lambda: limit)
    with ExitStack() as taken:
        for _ in range(50):
            taken.enter_context(admission.taken())
        with pytest.raises(Fault) as caught, admission.taken():
            pass
        body = caught.value.to_body()
        assert (body["error"], body["code"]) == ("Server overloaded", -32000)
        assert (body["data"]["type"], body["data"]["retryable"]) == (FaultType.TRANSPORT.value, True)
        limit = 51
        with admission.taken():
            assert admission.active == 51
    assert admission.active == 0
    with pytest.raises(ZeroDivisionError), admission.taken():
        raise ZeroDivisionError
    assert admission.active == 0
