"""Messages between handlers: dataclasses as XML with a schema, as JSON, and as text (HC-23, HC-24).

``payload`` has ``Payload`` and ``PayloadType``. A type is made from a class (``class_shape``) or from the
JSON that describes one in another process; both give a ``field_shape``. ``xml_writer`` and ``xml_reader``
convert values, ``scalars`` the plain ones; ``payload_schemas`` makes XSD, JSON schema and examples.
``text_input`` reads what a person, a client or a model wrote, ``xml_fragments`` and ``envelope`` what a
handler returned as bytes.
"""

from .envelope import envelope, is_envelope, target_and_payload
from .payload import MAX_BYTES, Form, NotTaken, Payload, PayloadFault, PayloadType
from .text_input import read_text
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
    "read_text",
    "target_and_payload",
]
