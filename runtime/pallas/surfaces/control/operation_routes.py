"""A route for each operation of a fleet's port, made from its declaration (``pallas.model.operation``)."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, create_model
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pallas.model import (
    Envelope,
    FaultType,
    FleetPort,
    Image,
    MessageRecord,
    Operation,
    OperationParameter,
    Page,
    PastRun,
    TokenScope,
    codec,
    operations_of,
)
from pallas.model.operations import MAX_ID, READ_ONLY, REQUIRED
from pallas.model.redaction import forget, redact
from pallas.safe_text import one_line

from ..request_problems import first_of, problem_of
from .event_stream import for_lookers
from .responses import (
    HEADERS,
    ControlError,
    body_of,
    busy,
    caller_of,
    faults,
    json_answer,
    number_of,
    within,
    wrong,
)
from .token_middleware import NO_TEXTS, audit

MAX_WAITING: Final = 32
"""Requests at once that wait for the fleet."""
MARGIN_S: Final = 5.0
"""Seconds added to the deadline of an operation: the fleet itself gives up before."""
MAX_PICTURES: Final = 12 * 1024 * 1024
"""Characters of base64 in one answer; of further pictures only the kind is sent."""
MAX_XML: Final = 8 * 1024 * 1024
"""Characters of XML in one answer: a page of large messages has fewer of them, at least one."""

_MAX_NUMBER: Final = 10**15


class OperationRoutes:
    """The routes of all operations of ``fleet``, in ``routes``.

    ``waiting`` counts the requests that wait for the fleet now.
    """

    def __init__(self, fleet: FleetPort) -> None:
        self._fleet = fleet
        self.waiting = 0
        # Literal parts of a path win over parameters.
        operations = sorted(
            operations_of(type(fleet)), key=lambda each: [part[:1] == "{" for part in each.path.split("/")]
        )
        self.routes = [route for each in operations for route in self._routes_of(each)]

    def _routes_of(self, operation: Operation) -> Iterator[Route]:
        for parameter in operation.parameters:
            if parameter.choices and operation.path == f"/{{{parameter.name}}}":
                # As a parameter it would match every path of one segment.
                for choice in parameter.choices:
                    page = self._page(operation, {parameter.name: choice})
                    yield Route(f"/{choice}", faults(page), methods=[operation.http_method])
                return
        yield Route(operation.path, faults(self._page(operation, {})), methods=[operation.http_method])

    def _page(self, operation: Operation, fixed: dict[str, Any]) -> Callable[[Request], Awaitable[Response]]:
        body = _body_model(operation)

        async def page(request: Request) -> Response:
            self._may_read(operation, request)
            path_and_query = [each for each in operation.parameters if each.place != "body"]
            arguments = {each.name: self._argument(each, request) for each in path_and_query} | fixed
            if body is not None:
                arguments |= _body_of(operation, body, await body_of(request))
            return await self._answer(operation, request, arguments)

        page.__name__ = operation.name
        return page

    async def _answer(self, operation: Operation, request: Request, arguments: dict[str, Any]) -> Response:
        if operation.scope is TokenScope.FULL:
            self._allow(operation, request, arguments)
        # By position: a double in a test may name them as it likes.
        given = [arguments[each.name] for each in operation.parameters]
        method = getattr(self._fleet, operation.name)
        if not operation.waits:
            method(*given)
            return json_answer({"accepted": True}, 202)
        with self._work(), _masked(operation, arguments):
            value = await within(operation.deadline_s + MARGIN_S, request, method(*given))
        if operation.result_key:
            return json_answer({operation.result_key: True if value is None else value})
        value = _bounded(operation.result, value)
        if operation.result == tuple[PastRun, ...] and not self._reads_texts(request):
            value = tuple(replace(each, events=_without_texts(each)) for each in value)
        encoded = codec.encode_as(operation.result, value)
        return Response(encoded, headers=HEADERS, media_type="application/json")

    def _argument(self, parameter: OperationParameter, request: Request) -> Any:
        """The value of an argument in the path or the query. Raises ControlError."""
        if parameter.place == "query":
            return _queried(parameter, request)
        value = str(request.path_params.get(parameter.name, ""))[:MAX_ID]
        if parameter.choices and value and value not in parameter.choices:
            raise wrong(f"{parameter.name} must be one of {', '.join(parameter.choices)}", 404)
        if parameter.rules.is_agent:
            agents = [agent.name for agent in self._fleet.snapshot().agents]
            if value not in agents:
                known = one_line(", ".join(agents), 400)
                raise wrong(f"there is no such agent; this fleet has {known}", 404)
        if parameter.type is int:
            most = _MAX_NUMBER if parameter.rules.maximum is None else parameter.rules.maximum
            if not value.isdecimal() or not parameter.rules.minimum <= int(value) <= most:
                raise wrong(f"{parameter.name} must be a number from {parameter.rules.minimum} to {most}")
            return int(value)
        return value

    def _may_read(self, operation: Operation, request: Request) -> None:
        """Refuse texts to a token that may only look."""
        if operation.scope is not TokenScope.TEXTS:
            return
        if not self._reads_texts(request):
            audit(caller_of(request), request.scope, "refused", operation.title)
            raise ControlError(403, NO_TEXTS, FaultType.AUTH)

    def _reads_texts(self, request: Request) -> bool:
        return caller_of(request).scope.reads_texts and self._fleet.can_control

    def _allow(self, operation: Operation, request: Request, arguments: dict[str, Any]) -> None:
        """Log a change, and refuse it where the fleet takes none."""
        logged = {
            each.rules.log_field: one_line(str(arguments[each.name]), each.rules.shown)
            for each in operation.parameters
            if each.rules.log_field
        }
        outcome = "accepted" if self._fleet.can_control else "refused"
        audit(caller_of(request), request.scope, outcome, one_line(operation.describe(arguments)), **logged)
        if not self._fleet.can_control:
            raise ControlError(403, READ_ONLY, FaultType.AUTH)

    @contextmanager
    def _work(self) -> Iterator[None]:
        if self.waiting >= MAX_WAITING:
            raise busy(f"{MAX_WAITING} requests are being answered already")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


def _queried(parameter: OperationParameter, request: Request) -> Any:
    name, rules, default = parameter.wire_name, parameter.rules, parameter.default
    if parameter.type is bool:
        return number_of(request, name, int(default), 1) == 1
    if parameter.type is int:
        most = _MAX_NUMBER if rules.maximum is None else rules.maximum
        return max(rules.minimum, number_of(request, name, default, most))
    value = request.query_params.get(name, "" if default is REQUIRED else default)
    if rules.maximum is None:
        return value[:MAX_ID]
    if not rules.minimum <= len(value) <= rules.maximum:
        raise wrong(f"{name} must be {rules.what}, {rules.minimum} to {rules.maximum} characters")
    return value


def _body_model(operation: Operation) -> type[BaseModel] | None:
    """What the JSON of a request's body must be; None for an operation that takes none."""
    fields: dict[str, Any] = {}
    for each in operation.parameters:
        if each.place == "body":
            kind = SecretStr | None if each.rules.is_secret else each.type
            bounds: dict[str, Any] = {}
            if each.type in (str, str | None) or each.rules.is_secret:
                bounds = {"min_length": each.rules.minimum or None, "max_length": each.rules.maximum}
            default = ... if each.default is REQUIRED else each.default
            fields[each.wire_name] = (kind, Field(default, **bounds))
    if not fields:
        return None
    config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    return cast("type[BaseModel]", create_model(operation.name, __config__=config, **fields))


def _body_of(operation: Operation, model: type[BaseModel], body: bytes) -> dict[str, Any]:
    """The arguments in the body. Raises ControlError, which repeats nothing of it."""
    try:
        found = model.model_validate_json(body)
    except ValidationError as error:
        first = first_of(error.errors(include_url=False, include_input=False))
        path = [str(part) for part in first["loc"]]
        where, problem = one_line(".".join(path), 100), problem_of(first, model, path)
        text = f"{where}: {problem}" if where else problem
        raise wrong(f"the body is not what {operation.name} takes: {text}") from None
    arguments = {}
    for each in operation.parameters:
        if each.place == "body":
            value = getattr(found, each.wire_name)
            arguments[each.name] = value.get_secret_value() or None if isinstance(value, SecretStr) else value
    return arguments


@contextmanager
def _masked(operation: Operation, arguments: dict[str, Any]) -> Iterator[None]:
    """Mask secrets among the arguments in every log record within the block."""
    with ExitStack() as stack:
        for each in operation.parameters:
            if each.rules.is_secret and (secret := arguments[each.name]):
                redact(secret)
                stack.callback(forget, secret)
        yield


def _bounded(kind: Any, value: Any) -> Any:
    """Return the value, cut to the data that one answer may carry."""
    if kind == Page[MessageRecord]:
        return _fewer_pictures(value)
    if kind == tuple[Envelope, ...]:
        return _fewer_messages(value)
    return value


def _without_texts(run: PastRun) -> tuple[dict[str, Any], ...]:
    """The events of a run for a token that may only look; one of an older release may be left out."""
    shown = []
    for document in run.events:
        with suppress(codec.Undecodable):
            if (event := codec.decode_event(document)) is not None:
                shown.append(codec.encode_event(for_lookers(event)))
    return tuple(shown)


def _fewer_pictures(page: Page[MessageRecord]) -> Page[MessageRecord]:
    room, rows = MAX_PICTURES, []
    for row in page.items:
        images = []
        for image in row.images:
            room -= len(image.data)
            images.append(image if room >= 0 else Image("", image.mime_type))
        rows.append(replace(row, images=tuple(images)) if row.images else row)
    return Page(tuple(rows), page.next)


def _fewer_messages(found: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
    size = 0
    for index, each in enumerate(found):
        size += len(each.xml)
        if size > MAX_XML and index:
            return found[:index]
    return found
