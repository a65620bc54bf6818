"""Checks a kubeconfig before a library fails on it: the fault is a sentence that names file, field and remedy.

Checks only the file and this machine; whether a token is still valid, only the server knows.
"""

import base64
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

_ANOTHER = "name another one with --kubeconfig or KUBECONFIG"
_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}
_IN_HEADERS = "!#$&'*+^`|"
"""Characters that a header's name may have, besides those that `quote` never escapes."""

_DATA = {"cluster": ("certificate-authority-data",), "user": ("client-certificate-data", "client-key-data")}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named entry of one of the files; paths in it are relative to `folder`."""

    folder: Path
    content: Mapping[str, Any]


class _Broken(Exception):
    """Raised with the sentence about the fault."""


def fault(places: str, context: str | None) -> str:
    """Why the files (as in KUBECONFIG, one or several) can't be used with that context, the current one if None.

    "" if no fault is found.
    """
    paths = [Path(place).expanduser() for place in places.split(os.pathsep) if place]
    try:
        documents = list(_documents(paths))
        user_of = _Named(documents, "users", "user")
        chosen = _context(documents, context)
        cluster = _Named(documents, "clusters", "cluster").of(chosen, "cluster")
        _check_parts(cluster, "cluster")
        _check_server(cluster.content.get("server"))
        user = user_of.of(chosen, "user")
        _check_parts(user, "user")
        _check_plugin(user, str(chosen.content.get("user")))
    except _Broken as broken:
        return str(broken)
    return ""


def plugin(places: str, context: str | None) -> str:
    """The command by which the context's user gets credentials, with its arguments; "" if there is none.

    For files in which `fault` finds nothing.
    """
    asked = _user(places, context).get("exec") or {}
    return " ".join(map(str, [asked["command"], *(asked.get("args") or ())])) if asked.get("command") else ""


def impersonation(places: str, context: str | None) -> tuple[tuple[str, str], ...]:
    """The headers by which the context's user impersonates another one; none if it does not.

    For files in which `fault` finds nothing.
    """
    user = _user(places, context)
    if not user.get("as"):
        return ()
    extra = (user.get("as-user-extra") or {}).items()
    return (
        ("Impersonate-User", str(user["as"])),
        *([("Impersonate-Uid", str(user["as-uid"]))] if user.get("as-uid") else []),
        *(("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()),
        *((f"Impersonate-Extra-{quote(key, _IN_HEADERS)}", str(v)) for key, values in extra for v in values),
    )


def _user(places: str, context: str | None) -> Mapping[str, Any]:
    paths = [Path(place).expanduser() for place in places.split(os.pathsep) if place]
    documents = list(_documents(paths))
    return _Named(documents, "users", "user").of(_context(documents, context), "user").content


def _documents(paths: Sequence[Path]) -> Iterator[_Entry]:
    found = [path for path in paths if path.exists()]
    if not found:
        raise _Broken(f"no such file; {_ANOTHER}")
    for path in found:
        yield _Entry(path.parent, _parsed(path))


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _Broken(f"{path} cannot be read ({(error.strerror or '').lower()}); {_ANOTHER}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise _Broken(f"{path}{where} is not YAML: correct it, or {_ANOTHER}") from None
    if not isinstance(document, dict):
        raise _Broken(f"{path} is not a kubeconfig: it has no clusters, users and contexts; {_ANOTHER}")
    return document


class _Named:
    """The entries of one list (such as `users`) in all files, by name; the first entry of a name counts."""

    def __init__(self, documents: Sequence[_Entry], plural: str, singular: str) -> None:
        self._singular = singular
        self.entries: dict[str, _Entry] = {}
        for document in documents:
            for entry in document.content.get(plural) or ():
                if not isinstance(entry, dict) or not isinstance(entry.get(singular) or {}, dict):
                    raise _Broken(f"its {plural} are not a list of names and values: correct the file")
                made = _Entry(document.folder, entry.get(singular) or {})
                self.entries.setdefault(str(entry.get("name")), made)

    def of(self, context: _Entry, field: str) -> _Entry:
        """The entry that the context refers to in that field."""
        name = context.content.get(field)
        if name not in self.entries:
            raise _Broken(f"the context names {self._singular} {name!r}, which it does not have: correct the file")
        return self.entries[name]


def _context(documents: Sequence[_Entry], context: str | None) -> _Entry:
    contexts = _Named(documents, "contexts", "context").entries
    known = f"it has {', '.join(sorted(contexts))}" if contexts else "it has none"
    current = context or next((name for d in documents if (name := d.content.get("current-context"))), None)
    if current is None:
        raise _Broken(f"it has no current-context: choose one with --context ({known})")
    if current not in contexts:
        raise _Broken(f"there is no context {current!r}: choose one with --context ({known})")
    return contexts[current]


def _check_server(server: object) -> None:
    if not isinstance(server, str):
        raise _Broken("the context's cluster has no `server`: correct the file")
    if not _is_address(server):
        like = "such as https://10.0.0.1:6443"
        raise _Broken(f"the cluster's server {server!r} is not an address {like}: correct the file")


def _is_address(server: str) -> bool:
    try:
        url = urlsplit(server)
        host, port = (url.hostname or "").encode("idna"), url.port
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(host) and port != 0


def _check_parts(entry: _Entry, kind: str) -> None:
    for field in _FILES[kind]:
        named = entry.content.get(field)
        if named and not (entry.folder / str(named)).exists():
            raise _Broken(f"the {kind}'s {field} {named} does not exist: correct the file, or {_ANOTHER}")
    for field in _DATA[kind]:
        try:
            base64.b64decode(entry.content.get(field) or "", validate=True)
        except (ValueError, TypeError):
            raise _Broken(f"the {kind}'s {field} is not base64: correct the file, or {_ANOTHER}") from None


def _check_plugin(user: _Entry, name: str) -> None:
    asked = user.content.get("exec") or {}
    command = asked.get("command")
    if not command:
        return
    beside = (user.folder / command).exists() if "/" in command else False
    if not beside and shutil.which(command) is None:
        hint = " ".join(str(asked.get("installHint") or "").split())
        raise _Broken(
            f"user {name!r} gets credentials from the program {command}, which is not there: install it"
            f"{f' ({hint})' if hint else ''}, or choose another context with --context"
        )
