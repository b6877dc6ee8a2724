"""
What each key may hold: the reader of every field, the keys that end in another field, what is not
supported yet, and the environment variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, frozen

from slotgate._config import browsers
from slotgate._config import values as values
from slotgate._config.listening import anonymous, guarded
from slotgate._config.toml import Reader, Wrong, shown
from slotgate.config import (
    Client,
    Gateway,
    Identity,
    Logging,
    PromptHistory,
    Route,
    Router,
    Server,
)

#: Fields that several keys end in, at most one of them written.
ALTERNATIVES: Mapping[str, tuple[str, ...]] = {
    "api_key": ("api_key", "api_key_file", "api_key_env"),
    "key": ("key", "key_file", "key_env"),
    "slots": ("slot", "slots"),
}

#: Fields that are no keys: a server's name is the name of its table.
HIDDEN: Mapping[type, tuple[str, ...]] = {Server: ("name",)}

#: Settings of a route whose feature comes later: when a value would promise it, and what is the
#: promise. Whoever builds the feature deletes the row.
UNSUPPORTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "slots": (lambda slots: len(slots) > 1, "more than one slot of a route"),
}

_MAX_KEY_BYTES = 64 * 1024
_MAX_CERTIFICATES_BYTES = 16 * 1024 * 1024
_MAX_MIB = 1024 * 1024
_LEVELS = ("debug", "info", "warn", "error", "critical")


@frozen
class Variable:
    """An environment variable that is the default of a key."""

    name: str
    #: The class whose field it is, and the key under which its value goes into the table.
    cls: type
    key: str
    #: From the variable's text to the value that the file would have.
    convert: Callable[[str], object]

    @property
    def field(self) -> str:
        """The field that the key ends in."""
        for field, keys in ALTERNATIVES.items():
            if self.key in keys:
                return field
        return self.key

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the file that win over the variable."""
        return ALTERNATIVES.get(self.field, (self.key,))


def _whole(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        return text  # the reader says what is wrong with it


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _beside_us(text: str) -> object:
    # A shell's relative path is meant from where the command runs, not from the file's folder.
    return text if text.startswith("~") else str(Path.cwd() / text)


VARIABLES = (
    Variable("LLAMA_SLOT", Route, "slot", _whole),
    Variable("LLAMA_SLOT_SAVE_PATH", Server, "slot_save_path", _beside_us),
    Variable("LLAMA_CACHE_MAX_FILES", Route, "max_files", _whole),
    Variable("LLAMA_CACHE_MAX_GIB", Route, "max_gib", _number),
    Variable("LLAMA_MODELS_MAX", Router, "models_max", _whole),
    Variable("LLAMA_SAVE_IDLE_SECONDS", Route, "save_idle_seconds", _number),
)


@define
class Scope:
    """What the readers of one file need to know beyond the value."""

    #: The folder that relative paths start from.
    base: Path
    environ: Mapping[str, str]
    #: ``None``: the servers cannot be known, and their names are not checked.
    server_names: tuple[str, ...] | None = None
    #: Only this machine may be listened on.
    local_only: bool = False

    def readers(self, router: Reader) -> dict[type, dict[str, Reader]]:
        """
        The reader of every field of every class.

        :param router: reads ``[servers.NAME.router]``.
        """
        seconds = values.number(above=0)
        route: dict[str, Reader] = {
            "model": values.line,
            "server": self.server_name,
            "upstream_model": values.line_or_empty,
            "cache": values.boolean,
            "slots": values.slots,
            "save_idle_seconds": values.number(0),
            "min_tokens": values.whole(0),
            "max_files": values.whole(0),
            "max_gib": values.number(0),
            "normalise": values.boolean,
        }
        return {
            Gateway: {
                "listen": values.listed(anonymous if self.local_only else guarded, least=1),
                "state_dir": self.path,
                "drain_seconds": values.number(0),
                "max_body_mib": values.number(above=0, most=_MAX_MIB),
                "max_queue": values.whole(0),
                "stall_seconds": seconds,
                "allow_anonymous": values.boolean,
                "hosts": values.listed(browsers.host),
                "cors_origins": browsers.cors_origins,
            },
            Server: {
                "name": values.line,
                "url": values.url,
                "api_key": self.api_key,
                "ca_file": self.ca_file,
                "slot_save_path": self.path_or_empty,
                "control_timeout_seconds": seconds,
                # Less would ask a busy server for nothing else than its slots.
                "poll_seconds": values.number(0.01),
                "read_timeout_seconds": seconds,
                "load_wait_seconds": values.number(0),
                "verify": values.choice("size", "xxh3"),
                "sweep": values.boolean,
                "min_free_gib": values.number(0),
                "router": router,
            },
            Router: {
                "tracker": values.choice("enforce", "observe", "off"),
                "models_max": values.models_max,
            },
            Route: {field: _supported(field, reader) for field, reader in route.items()},
            Identity: {
                "headers": values.listed(values.header_source),
                "body": values.listed(values.body_field),
                "history": values.boolean,
                "system_prompt": values.boolean,
                "strict_hex": values.boolean,
            },
            Client: {"name": values.line, "key": self.client_key, "admin": values.boolean},
            PromptHistory: {
                "sessions": values.whole(0),
                "mib": values.number(above=0, most=_MAX_MIB),
                "keep_prompts": values.boolean,
            },
            Logging: {
                "format": values.choice("text", "json"),
                "level": values.choice(*_LEVELS),
                "levels": values.named(values.choice(*_LEVELS)),
            },
        }

    def default_state_dir(self) -> str:
        """Where the index lies when the file does not say."""
        state_home = self.environ.get("XDG_STATE_HOME", "")
        # A relative one is to be ignored, says the XDG base directory specification.
        return str(Path(state_home if state_home.startswith("/") else "~/.local/state", "slotgate"))

    def server_name(self, value: object) -> str:
        """The name of a server in the file."""
        name = values.line(value)
        if self.server_names is not None and name not in self.server_names:
            there = ", ".join(self.server_names)
            raise Wrong(f"no server is called {shown(name)} (there is: {there})")
        return name

    def path(self, value: object) -> Path:
        """An absolute path; ``~`` is the home folder, relative ones start from the file's."""
        given = values.line(value)
        try:
            return self.base / self._expanded(Path(given))
        except RuntimeError:
            raise Wrong(f"nobody knows the home folder of {shown(given)}") from None

    def path_or_empty(self, value: object) -> Path | None:
        """As :meth:`path`, but empty means "not set"."""
        return None if value == "" else self.path(value)

    def ca_file(self, value: object) -> Path | None:
        """A readable PEM file with a certificate, or empty for "not set"."""
        path = self.path_or_empty(value)
        if path is not None and b"-----BEGIN CERTIFICATE-----" not in _read(
            path, _MAX_CERTIFICATES_BYTES
        ):
            raise Wrong(f"{path} has no PEM certificate in it")
        return path

    def api_key(self, written: dict[str, object]) -> str | None:
        """The key of ``api_key``, ``api_key_file`` or ``api_key_env``; empty ones are not set."""
        return self._secret({key: value for key, value in written.items() if value != ""})

    def client_key(self, written: dict[str, object]) -> str | None:
        """The key of ``key``, ``key_file`` or ``key_env``."""
        for key, value in written.items():
            if value == "":
                raise Wrong("must not be empty", key=key)
        return self._secret(written)

    def _secret(self, written: dict[str, object]) -> str | None:
        if not written:
            return None
        key, *more = written
        if more:
            raise Wrong(f"there is {key} already: write only one of them", key=more[0])
        value = values.secret_text(written[key], key)
        try:
            if key.endswith("_file"):
                value = _key_of_file(self.path(value))
            elif key.endswith("_env"):
                if value not in self.environ:
                    raise Wrong(f"the environment variable {shown(value)} is not set")
                value = self.environ[value]
            return values.header_safe(value)
        except Wrong as error:
            raise Wrong(str(error), key=key) from None

    def _expanded(self, path: Path) -> Path:
        home = self.environ.get("HOME")
        if home and path.parts[:1] == ("~",):
            return Path(home, *path.parts[1:])
        return path.expanduser()


def _supported(field: str, reader: Reader) -> Reader:
    if field not in UNSUPPORTED:
        return reader
    promises, feature = UNSUPPORTED[field]

    def read(value: object) -> object:
        result = reader(value)
        if promises(result):
            raise Wrong(f"not supported yet: {feature}")
        return result

    return read


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        raise Wrong(f"cannot read {path}: {error.strerror}") from None


def _key_of_file(path: Path) -> str:
    try:
        key = _read(path, _MAX_KEY_BYTES).decode().strip(" \t\r\n")
    except UnicodeDecodeError:
        raise Wrong(f"{path} is no text file") from None
    if not key:
        raise Wrong(f"{path} is empty")
    return key
