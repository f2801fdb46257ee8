"""What handlers say to each other: dataclasses as XML with a schema, as JSON, and as text (HC-23, HC-24).

A ``PayloadType`` needs no class: it is made of one, or of what another process says of one.
"""

from .envelope import envelope, is_envelope, opened
from .payload import MAX_BYTES, Form, NotTaken, Payload, PayloadFault, PayloadType
from .xml_fragments import elements_of

__all__ = [
    "MAX_BYTES",
    "Form",
    "NotTaken",
    "Payload",
    "PayloadFault",
    "PayloadType",
    "elements_of",
    "envelope",
    "is_envelope",
    "opened",
]
