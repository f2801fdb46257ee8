"""Replies of handlers that return bytes (HC-21): deprecated, parsed safely, and under the same rules."""

from typing import Final

from lxml import etree

from pallas.config.kinds import TODO
from pallas.contract import Text
from pallas.model import Fault
from pallas.payloads import Payload, PayloadFault, PayloadType, elements_of, is_envelope, target_and_payload
from pallas.payloads.xml_element import Element

from .messaging_port import HandlerEndpoint, MessagingPeers
from .untyped_payload import untyped

Addressed = tuple[str | None, Payload]

_TODO_TAGS: Final = frozenset({f"{TODO}.todountil", f"{TODO}.todocomplete"})


def read(raw: bytes, endpoint: HandlerEndpoint, caller: str, peers: MessagingPeers) -> tuple[Addressed, ...]:
    """Return the messages in it, each with its target. Raises PayloadFault when they cannot be read.

    An envelope's ``to`` counts, its ``from`` and ``thread`` do not. Otherwise a tag that is ``name.class`` of
    the handler itself, a peer or its caller goes there; another one with a dot is refused; the rest are
    responses.
    """
    tags: dict[str, str] | None = None
    found: list[Addressed] = []
    for element in elements_of(raw, peers.limits.bytes):
        if is_envelope(element):
            to, body = target_and_payload(element)
            found.append((to, _loose(body)))
            continue
        name = etree.QName(element)
        tag = name.localname.lower()
        if "." in tag and tags is None:
            tags = _tags(endpoint, caller, peers)
        if "." not in tag:
            found.append((None, _answer(element, tag, caller, peers)))
        elif tags is not None and tag in tags:
            found.append((tags[tag], _loose(element)))
        else:  # No agent has such a name: the rules refuse it.
            found.append((f"<{name.localname}>", _loose(element)))
    if not found:
        raise PayloadFault("There is no element in it")
    return tuple(found)


def _tags(endpoint: HandlerEndpoint, caller: str, peers: MessagingPeers) -> dict[str, str]:
    """Return the root tags that name a target, lower-cased, with the names they refer to."""
    tags: dict[str, str] = {}
    for peer in sorted(endpoint.peers | {caller}):
        for kind in _classes(peer, peers):
            tags[f"{peer}.{kind}".lower()] = peer
    for name in (endpoint.shown, endpoint.name):
        tags[f"{name}.{endpoint.payload.name}".lower()] = endpoint.name
    if endpoint.is_agent:
        tags.update(dict.fromkeys(_TODO_TAGS, TODO))
    return tags


def _classes(peer: str, peers: MessagingPeers) -> list[str]:
    try:
        typed = peers.endpoints(peer)
    except Fault:  # Not available now: then its class is unknown.
        return []
    if typed:
        return [each.payload.name for each in typed]
    return [Text.__name__] if peers.knows(peer) else []


def _answer(element: Element, tag: str, caller: str, peers: MessagingPeers) -> Payload:
    """Return a payload of the caller's own class if it fits, else an untyped one."""
    try:
        for each in peers.endpoints(caller):
            if each.payload.name.lower() == tag:
                return each.payload.adopt(element)
    except Fault:
        pass
    return _loose(element)


def _loose(element: Element) -> Payload:
    if etree.QName(element).localname.lower().rpartition(".")[2] == "text":
        try:
            return PayloadType.of(Text).adopt(element)
        except PayloadFault:
            pass
    return untyped(element)
