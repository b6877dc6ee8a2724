"""
From the file and the environment to a :class:`~slotgate.config.Config`, or to all the mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from slotgate._config import toml as _toml
from slotgate._config.settings import ALTERNATIVES, HIDDEN, VARIABLES, Scope, Variable
from slotgate._config.toml import Place, Structurer, Wrong, dotted, guess, kind, shown
from slotgate.config import (
    Client,
    Config,
    ConfigError,
    Gateway,
    Identity,
    Logging,
    PromptHistory,
    Route,
    Router,
    Server,
)
from slotgate.plain import printable

T = TypeVar("T")

_SECTIONS = tuple(field.name for field in attrs.fields(Config))
_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: The server and the route of a configuration that names none.
_DEFAULT_SERVER = "local"
_DEFAULT_MODEL = "*"


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """See :func:`slotgate.config.load_config`."""
    if path is None:
        return parse_config("", environ, Path.cwd(), source="the defaults")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused([f"{path}: not UTF-8 (byte {error.start})"]) from None
    except OSError as error:
        raise _refused([f"{path}: cannot read it: {error.strerror}"]) from None
    except ValueError as error:  # a path with a null in it
        raise _refused([f"{path}: cannot read it: {error}"]) from None
    return parse_config(text, environ, path.absolute().parent, source=str(path))


def parse_config(
    text: str, environ: Mapping[str, str], base: Path, *, source: str = "slotgate.toml"
) -> Config:
    """
    Read a configuration from a text.

    :param base: the folder that relative paths start from.
    :param source: how messages call the text.
    :raises ConfigError: with one line for each mistake.
    """
    try:
        document = _toml.parse(text)
    except Wrong as error:
        raise _refused([f"{source}: {error}"]) from None
    return _Loading(document, Scope(base, environ), source).config()


def _refused(lines: list[str]) -> ConfigError:
    return ConfigError("\n".join(printable(line) for line in lines))


class _Loading:
    """One file on its way; the mistakes are collected, so that all are told at once."""

    def __init__(self, document: dict[str, Any], scope: Scope, source: str) -> None:
        self._document = document
        self._scope = scope
        self._source = source
        self._environment_lines: list[str] = []
        _complete(document, scope)
        servers, gateway = document["servers"], document["gateway"]
        if isinstance(servers, dict):
            # With none there is one mistake already; routes need not repeat it.
            scope.server_names = tuple(servers) or None
        scope.local_only = not document["clients"] and (
            not isinstance(gateway, dict) or gateway.get("allow_anonymous", False) is False
        )
        self._readers = scope.readers(self._router)
        self._structurer = Structurer(self._readers, ALTERNATIVES, HIDDEN)

    def _lines(self) -> list[str]:
        toml = [
            f"{self._source}: {dotted(place)}: {message}" if place else f"{self._source}: {message}"
            for place, message in self._structurer.mistakes
        ]
        return self._environment_lines + toml

    def config(self) -> Config:
        """
        The configuration.

        :raises ConfigError: when there are mistakes.
        """
        document = self._document
        for key in document:
            if key not in _SECTIONS:
                self._wrong((), f"unknown key {shown(key)}{guess(key, _SECTIONS)}")
        self._fill_in_variables()
        gateway = self._structurer.structure(Gateway, document["gateway"], ("gateway",))
        servers = self._servers()
        routes = self._list("routes", Route)
        identity = self._structurer.structure(Identity, document["identity"], ("identity",))
        clients = self._list("clients", Client)
        prompt_history = self._structurer.structure(
            PromptHistory, document["prompt_history"], ("prompt_history",)
        )
        logging = self._structurer.structure(Logging, document["logging"], ("logging",))
        if not routes and document["routes"] == []:
            self._wrong(("routes",), "there is no route: add [[routes]]")
        self._refuse_twins(routes, clients)
        if (
            self._lines()
            or gateway is None
            or identity is None
            or prompt_history is None
            or logging is None
        ):
            raise _refused(self._lines())
        found = [server for server in servers.values() if server is not None]
        return Config(
            gateway=gateway,
            servers={server.name: server for server in found},
            routes=tuple(route for _, route in routes),
            identity=identity,
            clients=tuple(client for _, client in clients),
            prompt_history=prompt_history,
            logging=logging,
        )

    def _wrong(self, place: Place, message: str) -> None:
        self._structurer.wrong(place, message)

    def _router(self, value: object) -> Router:
        return self._structurer.structured(Router, value)

    def _servers(self) -> dict[str, Server | None]:
        tables = self._document["servers"]
        if not isinstance(tables, dict):
            self._wrong(("servers",), f"expected tables [servers.NAME], got {kind(tables)}")
            return {}
        if not tables:
            self._wrong(("servers",), "there is no server")
        servers: dict[str, Server | None] = {}
        by_url: dict[str, str] = {}
        for name, table in tables.items():
            place = ("servers", name)
            if not isinstance(table, dict):
                self._wrong(place, f"expected a table [{dotted(place)}], got {kind(table)}")
                continue
            if not _SERVER_NAME.fullmatch(name):
                self._wrong(place, "a server's name is letters, digits, '.', '_', '-', at most 64")
            if table.get("ca_file") and str(table.get("url", "http:")).lower()[:5] == "http:":
                self._wrong((*place, "ca_file"), "is of use only with an https url")
            server = self._structurer.structure(Server, table, place, name=name)
            servers[name] = server
            if server is None:
                continue
            first = by_url.setdefault(server.url, name)
            if first != name:
                # Two servers would each believe that the slots are theirs.
                self._wrong((*place, "url"), f"the same address as {dotted(('servers', first))}")
        return servers

    def _list(self, section: str, cls: type[T]) -> list[tuple[int, T]]:
        """The tables of ``[[section]]`` that are right, each with its number."""
        tables = self._document[section]
        if not isinstance(tables, list):
            self._wrong((section,), f"expected tables [[{section}]], got {kind(tables)}")
            return []
        results = []
        for index, table in enumerate(tables):
            result = self._structurer.structure(cls, table, (section, index))
            if result is not None:
                results.append((index, result))
        return results

    def _refuse_twins(
        self, routes: list[tuple[int, Route]], clients: list[tuple[int, Client]]
    ) -> None:
        models: dict[str, int] = {}
        for index, route in routes:
            first = models.setdefault(route.model, index)
            if first != index:
                message = f"routes[{first}] has the model {shown(route.model)} already"
                self._wrong(("routes", index, "model"), message)
        names: dict[str, int] = {}
        keys: dict[str, int] = {}
        for index, client in clients:
            first = names.setdefault(client.name, index)
            if first != index:
                message = f"clients[{first}] has the name {shown(client.name)} already"
                self._wrong(("clients", index, "name"), message)
            first = keys.setdefault(client.key, index)
            if first != index:
                written = next(
                    key for key in ALTERNATIVES["key"] if key in self._document["clients"][index]
                )
                self._wrong(("clients", index, written), f"clients[{first}] has the same key")

    def _fill_in_variables(self) -> None:
        for variable in VARIABLES:
            text = self._scope.environ.get(variable.name, "")
            tables = [
                table
                for table in self._tables(variable.cls)
                if not any(key in table for key in variable.keys)
            ]
            if not text or not tables:
                continue
            try:
                value = self._checked(variable, text)
            except Wrong as error:
                self._environment_lines.append(f"environment: {variable.name}: {error}")
                continue
            for table in tables:
                table[variable.key] = value

    def _checked(self, variable: Variable, text: str) -> object:
        value = variable.convert(text)
        several = variable.field in ALTERNATIVES
        self._readers[variable.cls][variable.field]({variable.key: value} if several else value)
        return value

    def _tables(self, cls: type) -> Iterator[dict[str, Any]]:
        """The tables of the file that become a class, as far as they are tables."""
        section = self._document["routes" if cls is Route else "servers"]
        entries = list(section.values()) if isinstance(section, dict) else section
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            table = entry.setdefault("router", {}) if cls is Router else entry
            if isinstance(table, dict):
                yield table


def _complete(document: dict[str, Any], scope: Scope) -> None:
    """Put in what a file without the section means."""
    for section in ("gateway", "identity", "prompt_history", "logging"):
        document.setdefault(section, {})
    if isinstance(document["gateway"], dict):
        document["gateway"].setdefault("state_dir", scope.default_state_dir())
    document.setdefault("clients", [])
    servers = document.setdefault("servers", {_DEFAULT_SERVER: {}})
    if "routes" not in document:
        names = list(servers) if isinstance(servers, dict) and servers else [_DEFAULT_SERVER]
        only = {"model": _DEFAULT_MODEL, "server": names[0]}
        document["routes"] = [only] if len(names) == 1 else []
