"""
Readers: one value of the file each, checked for type and sense, nothing coerced but an integer
where a number is meant.

Each takes the value as tomllib gives it and raises :class:`~slotgate._config.toml.Wrong`.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from slotgate._config.toml import Reader, Wrong, guess, kind, shown

#: Seconds. epoll takes at most 2**31 milliseconds, so longer waits would break the reactor.
LONGEST_SECONDS = 1_000_000

# RFC 7230, 3.2.6
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?")
# RFC 3986, 3.3
_PATH = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")

#: Headers with a secret in them, or another value with every request: a pattern that finds one of
#: them too is no source of session ids.
_NO_SOURCES = (
    "authorization",
    "cookie",
    "host",
    "x-api-key",
    "x-request-id",
    "user-agent",
)


def text(value: object) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise Wrong(f"expected text, got {shown(value)}")
    return value


def line(value: object) -> str:
    """Text that is not empty and has no control characters."""
    if not text(value):
        raise Wrong("must not be empty")
    if has_control(text(value)):
        raise Wrong(f"has a control character: {shown(value)}")
    return text(value)


def line_or_empty(value: object) -> str:
    """As :func:`line`, but empty is allowed and means "not set"."""
    return "" if value == "" else line(value)


def boolean(value: object) -> bool:
    """``true`` or ``false``."""
    if not isinstance(value, bool):
        raise Wrong(f"expected true or false, got {shown(value)}")
    return value


def whole(least: int, most: int = 2**31 - 1) -> Callable[[object], int]:
    """A reader of whole numbers in a range, ends included."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Wrong(f"expected a whole number, got {shown(value)}")
        _in_range(value, least, most)
        return value

    return read


def number(
    least: float | None = None, *, above: float | None = None, most: float = LONGEST_SECONDS
) -> Callable[[object], float]:
    """A reader of finite numbers; ``above`` is a lower end that does not belong to the range."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Wrong(f"expected a number, got {shown(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise Wrong(f"expected a finite number, got {shown(value)}")
        if above is not None and value <= above:
            raise Wrong(f"must be more than {above}, got {shown(value)}")
        _in_range(value, least, most)
        return float(value)

    return read


def choice(*words: str) -> Callable[[object], str]:
    """A reader of one of several words."""

    def read(value: object) -> str:
        if value not in words or not isinstance(value, str):
            hint = guess(value, words) if isinstance(value, str) else ""
            raise Wrong(f"expected one of {', '.join(words)}, got {shown(value)}{hint}")
        return value

    return read


def listed(item: Reader, *, least: int = 0) -> Callable[[object], tuple[Any, ...]]:
    """A reader of a list of different values, each read by ``item``."""

    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Wrong(f"expected a list, got {shown(value)}")
        if len(value) < least:
            raise Wrong("the list must not be empty")
        values: list[Any] = []
        wrongs: list[Wrong] = []
        for index, one in enumerate(value):
            try:
                new = item(one)
            except Wrong as error:
                wrongs.append(Wrong(str(error), item=index))
                continue
            if new in values:
                wrongs.append(Wrong(f"{shown(one)} is there twice", item=index))
            values.append(new)
        if wrongs:
            raise ExceptionGroup("a list with mistakes", wrongs)
        return tuple(values)

    return read


def named(item: Reader) -> Callable[[object], Mapping[str, Any]]:
    """A table whose keys are the file's own."""

    def read(value: object) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"expected a table, got {kind(value)}")
        results = {}
        for name, one in value.items():
            try:
                results[line(name)] = item(one)
            except Wrong as error:
                raise Wrong(f"{shown(name)}: {error}") from None
        return results

    return read


def header_name(value: object) -> str:
    """The name of an HTTP header (a token of RFC 7230), lower-case."""
    if not _TOKEN.fullmatch(text(value)):
        raise Wrong(f"{shown(value)} is no name of a header")
    return text(value).lower()


def header_source(value: object) -> str:
    """As :func:`header_name`, or a pattern of names, in which ``*`` stands for anything."""
    name = header_name(value)
    for other in _NO_SOURCES if "*" in name else ():
        if fnmatchcase(other, name):
            raise Wrong(f"{shown(name)} would find {other} too, which is no session's name")
    return name


def body_field(value: object) -> str:
    """A field of a JSON body; dots go into inner objects."""
    if not all(line(value).split(".")):
        raise Wrong(f"{shown(value)} has an empty part between its dots")
    return line(value)


def models_max(value: object) -> int | None:
    """``"auto"`` (``None``), or a number of models."""
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wrong(f'expected a whole number or "auto", got {shown(value)}')
    return whole(0)(value)


def slots(written: dict[str, object]) -> tuple[int, ...]:
    """The slot ids of ``slot = 0`` or ``slots = [0, 1]``."""
    if len(written) > 1:
        raise Wrong("there is slot already: write only one of slot and slots", key="slots")
    if "slots" in written:
        return listed(whole(0), least=1)(written["slots"])
    try:
        return (whole(0)(written["slot"]),)
    except Wrong as error:
        raise Wrong(str(error), key="slot") from None


def url(value: object) -> str:
    """
    The address of a llama-server, without a slash or ``/v1`` at its end: the slots are at the
    root of the server, and clients write the API's address with ``/v1``.
    """
    given = line(value)
    if "@" in "/".join(given.split("/", 3)[:3]):
        # Not shown: what stands before the @ is a password.
        raise Wrong("must not have a user or a password: use api_key")
    if "?" in given or "#" in given:
        raise Wrong("must not have a query or a fragment")
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise Wrong(f"{shown(given)} is no address like http://127.0.0.1:8080") from None
    if parts.scheme not in ("http", "https"):
        raise Wrong(f"must begin with http:// or https://, got {shown(given)}")
    if not host or port == 0 or not (_HOST.fullmatch(host) or _is_ipv6(host)):
        raise Wrong(f"{shown(given)} has no usable host or port")
    if not _PATH.fullmatch(parts.path):
        raise Wrong(f"{shown(given)} has a character that must be written as %XX")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    where = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{where}{'' if port is None else f':{port}'}{path}"


def header_safe(key: str) -> str:
    """
    A key that can stand in a header line as it is.

    :raises Wrong: without the key in the message.
    """
    if not key:
        raise Wrong("must not be empty")
    if has_control(key):
        raise Wrong("has a control character, which no header can carry")
    if not all(ord(character) < 256 for character in key):
        raise Wrong("has a character outside Latin-1, which no header can carry")
    if key != key.strip():
        raise Wrong("begins or ends with a space, which headers lose")
    return key


def has_control(value: str) -> bool:
    """Whether there is a control character (C0, DEL or C1)."""
    return any(ord(character) < 32 or 127 <= ord(character) < 160 for character in value)


def secret_text(value: object, key: str) -> str:
    """Text that no message may show."""
    if not isinstance(value, str):
        raise Wrong(f"expected text, got {kind(value)}", key=key)
    return value


def _in_range(value: float, least: float | None, most: float) -> None:
    if least is not None and value < least:
        raise Wrong(f"must be at least {least}, got {shown(value)}")
    if value > most:
        raise Wrong(f"must be at most {most}, got {shown(value)}")


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6 and "%" not in host
    except ValueError:
        return False
