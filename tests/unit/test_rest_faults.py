"""Faults as HTTP answers."""

import json

import pytest

from pallas.model import Fault, FaultType, refusals
from pallas.model.redaction import forget, redact
from pallas.surfaces.rest import http_faults


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (refusals.not_found("x"), 404),
        (refusals.conflict("x"), 409),
        (refusals.in_use("x"), 409),
        (refusals.forbidden("x"), 403),
        (refusals.unauthenticated("x"), 401),
        (refusals.unprocessable("x"), 422),
        (refusals.too_many("x", 3.2), 429),
        (Fault(FaultType.PROTOCOL, "x"), 400),
        (Fault(FaultType.CONFIG, "x"), 400),
        (Fault(FaultType.AUTH, "x"), 401),
        (Fault(FaultType.TIMEOUT, "x"), 504),
        (Fault(FaultType.TRANSPORT, "x"), 503),
        (Fault(FaultType.UPSTREAM, "x"), 502),
        (Fault(FaultType.UPSTREAM, "x", data={"stage": "run"}), 502),
        (Fault(FaultType.INTERNAL, "x"), 500),
        # PI-17: an agent that cannot answer.
        (Fault(FaultType.UPSTREAM, "x", data={"stage": "start"}), 503),
        (Fault(FaultType.UPSTREAM, "x", data={"stage": "crash-loop"}), 503),
        (Fault(FaultType.UPSTREAM, "x", data={"stage": "stopped"}), 503),
        (http_faults.HttpFault(415, "x"), 415),
    ],
)
def test_each_fault_has_its_status_and_the_same_body(fault: Fault, status: int) -> None:
    # UN-4
    answer = http_faults.answer(fault)
    assert answer.status_code == status
    assert json.loads(bytes(answer.body)) == fault.to_body()
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_nonsense_from_behind_an_agent_is_no_mistake_of_the_caller() -> None:
    said = Fault(FaultType.PROTOCOL, "Invalid worker response: malformed prompt result")
    asked = Fault(FaultType.PROTOCOL, "top_k: must be a whole number", data={"key": "top_k"})
    said.of_agent = asked.of_agent = True
    assert [http_faults.status_of(each, of_run=True) for each in (said, asked)] == [502, 400]


def test_a_field_whose_name_is_that_of_a_secret_hides_nothing_of_what_is_wrong_with_it() -> None:
    key = "servers.1.headers.Authorization"
    told = Fault(FaultType.PROTOCOL, f"{key}: write ${{secret:NAME/KEY}}", data={"key": key})
    assert http_faults.body_of(told)["error"] == told.message
    # What stands there is masked as ever.
    held = Fault(FaultType.PROTOCOL, f"{key}: token=abcdefgh1234", data={"key": key})
    assert http_faults.body_of(held)["error"] == f"{key}: token=[redacted]"


def test_what_a_run_came_to_is_no_matter_of_the_caller_s_token() -> None:
    refused = http_faults.answer(Fault(FaultType.AUTH, "the provider refused the key"), of_run=True)
    assert refused.status_code == 502 and "www-authenticate" not in refused.headers
    assert http_faults.answer(refusals.forbidden("not yours"), of_run=True).status_code == 403


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault(FaultType.TRANSPORT, "x"), "5"),
        (Fault(FaultType.TRANSPORT, "x", data={"retry_after": 7.2}), "8"),
        (Fault(FaultType.TRANSPORT, "x", data={"retry_after": 0.05}), "1"),
        (refusals.too_many("x", 3.2), "4"),
        (Fault(FaultType.UPSTREAM, "x", data={"stage": "start"}), None),
        (Fault(FaultType.UPSTREAM, "x", data={"retry_after": 7.2}), None),
    ],
)
def test_when_to_come_again_is_told_where_that_helps(fault: Fault, seconds: str | None) -> None:
    assert http_faults.answer(fault).headers.get("retry-after") == seconds


def test_nothing_secret_and_nothing_hostile_is_told() -> None:
    # PR-36
    redact("planted-secret-2")
    try:
        body = http_faults.body_of(
            Fault(FaultType.UPSTREAM, "\x1b[2J planted-secret-2", data={"why": "\u202eevil"})
        )
    finally:
        forget("planted-secret-2")
    assert "planted" not in str(body) and "\x1b" not in body["error"] and "\u202e" not in body["data"]["why"]


def test_what_is_wrong_with_a_request_is_named_by_its_path_and_never_repeated() -> None:
    errors = [
        {"loc": ("body", "images", 0, "data"), "msg": "Field required", "input": "planted"},
        {"loc": ("body", "z"), "msg": "Extra inputs are not permitted"},
    ]
    fault = http_faults.invalid(errors)
    assert fault.message == "images.0.data: field required (and 1 more)"
    assert fault.data == {"key": "images.0.data"} and fault.type is FaultType.PROTOCOL
    assert (
        http_faults.invalid([{"loc": ("body",), "msg": "Field required"}]).message
        == "the body: field required"
    )
    body = {"loc": ("body",), "type": "model_attributes_type", "msg": "Input should be a valid dictionary or"}
    assert http_faults.invalid([body]).message == "the body: must be an object"
    unknown = {"loc": ("body", "titel"), "type": "extra_forbidden", "msg": "Extra inputs are not permitted"}
    assert http_faults.invalid([unknown]).message == "titel: there is no such key"
    hostile = http_faults.invalid(
        [{"loc": ("body", "\x1b[2J" * 100), "msg": "Extra inputs are not permitted"}]
    )
    assert "\x1b" not in hostile.message and len(hostile.message) < 600
