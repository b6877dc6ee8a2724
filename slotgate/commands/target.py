"""
Which gateway a command talks to, and with whose key.

A key is never an argument: everybody on the machine can read those.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from attrs import field, frozen

from slotgate._config.listening import listening
from slotgate.commands.failed import CommandFailed
from slotgate.config import Config, ConfigError, load_config

DEFAULT_URL = "http://127.0.0.1:11434"
KEY_VARIABLE = "SLOTGATE_API_KEY"


@frozen
class Target:
    """A gateway that runs."""

    #: Without a slash at its end.
    url: str
    key: str | None = field(default=None, repr=False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`target_of` reads."""
    parser.add_argument(
        "--url", help=f"where the gateway is (default: as --config says, else {DEFAULT_URL})"
    )
    parser.add_argument(
        *("--config", "-c"),
        type=Path,
        metavar="FILE",
        help="the gateway's TOML file, for its address and an admin's key",
    )
    parser.add_argument(
        "--key-env",
        metavar="NAME",
        help=f"the environment variable with the key (default: {KEY_VARIABLE})",
    )


def target_of(
    url: str | None, file: Path | None, key_env: str | None, environ: Mapping[str, str]
) -> Target:
    """
    The gateway that is meant.

    :param file: the gateway's configuration.
    :raises CommandFailed: the options do not say which, or name a variable that is not set.
    """
    config = None
    if file is not None:
        try:
            config = load_config(file, environ)
        except ConfigError as error:
            raise CommandFailed(error.lines[0]) from None
    if url is None:
        url = DEFAULT_URL if config is None else _listening(config)
    return Target(_checked(url), _key(config, key_env, environ))


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise CommandFailed(f"--url must be like {DEFAULT_URL}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise CommandFailed(f"--url must be like {DEFAULT_URL}; a key comes by {KEY_VARIABLE}")
    return url.rstrip("/")


def _key(config: Config | None, key_env: str | None, environ: Mapping[str, str]) -> str | None:
    if key_env is not None and key_env not in environ:
        raise CommandFailed(f"the environment variable {key_env} is not set")
    name = key_env or KEY_VARIABLE
    if key := environ.get(name, "").strip():
        if not key.isascii() or not key.isprintable():
            raise CommandFailed(f"what is in {name} can not be a key")
        return key
    admins = [client.key for client in config.clients if client.admin] if config else []
    return admins[0] if admins else None


def _listening(config: Config) -> str:
    """The address of the first TCP port that a configuration listens on."""
    for description in config.gateway.listen:
        for one in listening(description):
            # which name the certificate of an ssl: endpoint is for is not known
            if one.scheme == "http" and one.port:
                return one.url
    raise CommandFailed("the configuration says no TCP port to reach the gateway at: give --url")
