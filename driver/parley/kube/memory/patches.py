"""The object that results from a write: merge patch (RFC 7386), and which part of an object each request may
change.

Pure functions of JSON values. None of them changes its arguments; unchanged parts are shared with the original.
Server-side apply is in `managed_fields`.
"""

from typing import Any

from parley.kube.memory import metadata
from parley.kube.memory.kinds import Json, Traits


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with the patch merged into it; fields that are null in the patch are removed. New values contain
    no nulls either, not even in lists, where upstream does more than the RFC (gopkg.in/evanphx/json-patch.v4,
    merge.go)."""
    if not isinstance(target, dict):
        return _without_nulls(patch)
    if not isinstance(patch, dict):
        return patch
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def conformed(about: Traits, old: Json, asked: Json, subresource: str) -> Json:
    """The old object with the part of the requested one that may change: only the status, or all but the
    status."""
    if subresource == "status":
        kept = metadata.with_some(old, asked, about.metadata_with_status)
        return about.adjust(old, _with_status(kept, about.settle({"status": asked.get("status")})))
    if about.status:
        asked = _with_status(asked, old)
    return metadata.updated(old, about.settle(asked))


def _with_status(body: Json, other: Json) -> Json:
    """The body with the other's status, if it has any."""
    rest = {name: value for name, value in body.items() if name != "status"}
    return {**rest, "status": other["status"]} if "status" in other else rest


def applied(about: Traits, config: Json, subresource: str) -> Json:
    """The part of an applied configuration that the request may change, as in `conformed`."""
    if subresource == "status":
        meta = {
            key: value for key, value in config.get("metadata", {}).items() if key in ("uid", "resourceVersion")
        }
        return {"metadata": meta, **({"status": config["status"]} if "status" in config else {})}
    if about.status:
        return {name: value for name, value in config.items() if name != "status"}
    return config
