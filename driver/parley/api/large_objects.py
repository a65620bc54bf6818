"""Cuts the metadata of large objects before they are decoded. Pure.

The API server limits an object's size, but not the number of its labels or owner references, and `managedFields`
has an entry for each. A decoder of models creates an object for each, and blocks all other tasks meanwhile.
"""

import re
from itertools import islice
from typing import Final

import msgspec

from parley.api.builtin import OwnerReference
from parley.api.names import GROUP
from parley.api.owners import MAX_OWNERS, few_owners
from parley.api.scanning import members

MAX_LABELS: Final = 256
"""The number of labels, or annotations, of an object that are kept: the first by name."""

_LONG: Final = 64 * 1024
"""The bytes from which only the first labels are read, and Parley's own. API servers sort them by name."""

_OWN: Final = re.compile(rb'"%s/[^"]*"[ \t\r\n]*:[ \t\r\n]*"[^"]*"' % re.escape(GROUP.encode()))

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_owners = msgspec.json.Decoder(list[OwnerReference] | None).decode


def with_little_metadata(text: bytes) -> bytes:
    """The JSON of an object with few of its labels, `few_owners` of its owner references, and without
    `managedFields`; unchanged if it can't be read."""
    try:
        whole = _members(text)
        meta = _members(whole["metadata"])
        labels, owners = bytes(meta.get("labels", b"")), _owners(meta.get("ownerReferences", b"null")) or []
        if len(labels) > _LONG:
            meta["labels"] = msgspec.Raw(_few_labels(labels))
    except (ValueError, KeyError, RecursionError):
        return text
    meta.pop("managedFields", None)
    if len(owners) > MAX_OWNERS:
        meta["ownerReferences"] = _encoded(few_owners(owners))
    return msgspec.json.encode({**whole, "metadata": _encoded(meta)})


def _few_labels(text: bytes) -> bytes:
    first = [b'"%s":%s' % (one.name, text[one.start : one.end]) for one in islice(members(text), MAX_LABELS)]
    return b"{%s}" % b",".join(first + _OWN.findall(text))


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
