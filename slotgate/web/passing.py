"""
Requests that pass through: everything that is not a generation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from urllib.parse import parse_qsl, urlencode

from attrs import define, evolve, frozen
from twisted.web.iweb import IRequest

from slotgate.config import Client
from slotgate.reloading import Settings
from slotgate.routes import route_for
from slotgate.slots.backend import Backend, Place
from slotgate.slots.choice import End, Want
from slotgate.snapshots.names import OURS
from slotgate.surfaces.anthropic import translation_of
from slotgate.surfaces.generation import with_fields
from slotgate.surfaces.translation import Translation
from slotgate.web.clients import Clients
from slotgate.web.forward import Forward
from slotgate.web.names import Names
from slotgate.web.rejected import Rejected
from slotgate.web.requests import body_of, loads_model
from slotgate.web.waiting import Chance, rejections, with_model

#: Whoever asks whether the server lives needs no key, as with llama-server itself.
_PUBLIC = frozenset({"/health", "/v1/health"})

#: Paths that a router answers by itself, whatever model is named.
_ROUTERS_OWN = _PUBLIC | {"/", "/models", "/v1/models", "/models/sse"}

#: What a router answers to a load (b11434).
_LOADED = b'{"success":true}'


_ONCE = Chance()


@frozen
class _Request:
    """A request on its way through."""

    request: IRequest
    #: Both as they go to the server.
    target: bytes
    body: bytes
    backend: Backend
    place: Place
    #: It is work, and not only a look, which a model's sleep is not to be disturbed by.
    works: bool
    #: What becomes of the answer.
    translation: Translation | None


@define
class Passing:
    """Relays what uses no slot, as it is."""

    _settings: Settings
    _clients: Clients
    _backends: Mapping[str, Backend]
    _names: Names
    _forward: Forward

    async def answer(self, request: IRequest, path: str) -> bytes | None:
        """
        Relay one request to the server of the model it names, else to the first route's.

        :raises Rejected: without a valid key, or when a router's model can not be loaded.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        if path not in _PUBLIC:
            self._clients.owner(request.requestHeaders)
        body = body_of(request)
        passing = await self._understood(request, path, body, _object(body) or {})
        if request.method == b"POST" and path == "/models/unload" and passing.place.model:
            unload = partial(self._relay, passing)
            await passing.backend.admissions.unload(passing.place.model, unload)
            return None
        if request.method == b"POST" and path == "/models/load":
            if await self._loaded(passing):
                return _LOADED
        else:
            # the router would unload another model for one that is not loaded
            place = Place(None) if _only_looks(passing) else passing.place
            await with_model(passing.backend, place, partial(self._relay, passing))
            return None
        await self._relay(passing)
        return None

    async def _understood(
        self, request: IRequest, path: str, body: bytes, fields: Mapping[str, object]
    ) -> _Request:
        posts = request.method == b"POST"
        translation = translation_of(path)
        query = parse_qsl(request.uri.partition(b"?")[2].decode("latin-1"), True)
        named = fields.get("model") if posts else dict(query).get("model")
        said = named if isinstance(named, str) and named else None
        asked = None if said is None else self._names.meant(said)
        config = self._settings.config
        found = route_for(config, asked)
        route = config.routes[0] if found is None else found[0]
        backend = self._backends[route.server]
        if asked is None or path in _ROUTERS_OWN:
            place = Place(None)
            return _Request(request, request.uri, body, backend, place, False, translation)
        place = await backend.found(route, asked, loads=loads_model(request))
        target = request.uri
        if place.name != said and posts:
            body = with_fields(body, fields, {"model": place.name})
        elif place.name != said:
            told = [(name, place.name if name == "model" else value) for name, value in query]
            target = b"%b?%b" % (target.partition(b"?")[0], urlencode(told).encode())
        return _Request(request, target, body, backend, place, posts, translation)

    async def send(
        self,
        request: IRequest,
        model: str,
        target: bytes,
        fields: Mapping[str, object],
        translation: Translation,
    ) -> None:
        """
        Send a request that another surface's was translated to, and translate its answer.

        :param model: the name that a route is looked for with.
        :raises Rejected: no route serves the model, or it can not be loaded.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        found = route_for(self._settings.config, model)
        if found is None:
            raise Rejected(404, f"model '{model}' not found")
        backend = self._backends[found[0].server]
        place = await backend.found(found[0], model)
        body = json.dumps({**fields, "model": place.name}).encode()
        passing = _Request(request, target, body, backend, place, True, translation)
        await with_model(backend, place, partial(self._relay, passing))

    async def _relay(self, passing: _Request, chance: Chance = _ONCE) -> None:
        server = passing.backend.server
        await self._forward(
            passing.request,
            server,
            passing.body,
            target=passing.target,
            resend=chance.resend,
            translation=passing.translation,
        )

    async def _loaded(self, passing: _Request) -> bool:
        """
        Load a model for a client, with room made as for a request.

        :returns: ``False``: the router is the one to say why not.
        """
        place = passing.place
        if place.model is None or passing.backend.tracker.model(place.model).status.running:
            return False

        async def loaded(chance: Chance) -> None:
            passing.request.setHeader(b"Content-Type", b"application/json; charset=utf-8")
            passing.request.setHeader(b"Content-Length", b"%d" % len(_LOADED))

        # also where a request would not load it
        loading = evolve(place, admissions=passing.backend.admissions)
        await with_model(passing.backend, loading, loaded)
        return True

    async def slot_call(self, request: IRequest, path: str) -> None:
        """
        Relay a client's own save, restore or erase, under a lease: only a lease touches a slot.

        Afterwards nobody knows what is in it, as the call leaves no mark.

        :raises Rejected: without a valid key, for a file of ours, or when the queue is full.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        owner = self._clients.owner(request.requestHeaders)
        body = body_of(request)
        fields = _object(body)
        if fields is None:
            # the server may read more in it than we do: a name of ours, for one
            raise Rejected(400, "the body of a slot call must be a JSON object, or empty")
        file = fields.get("filename")
        if isinstance(file, str) and OURS.match(file):
            raise Rejected(403, "this file is a snapshot of slotgate's")
        passing = await self._understood(request, path, body, fields)
        name = path.removeprefix("/slots/")
        await with_model(
            passing.backend, passing.place, partial(self._slot_call, passing, name, owner)
        )

    async def _slot_call(
        self, passing: _Request, name: str, owner: Client | None, chance: Chance
    ) -> None:
        slot = passing.backend.slot_named(passing.place, name)
        if slot is None:
            await self._relay(passing)
            return
        want = Want(None, owner.name if owner else None, self._clients.are_several)
        with rejections():
            lease = await slot.lease(want)
        try:
            await self._relay(passing)
        finally:
            lease.release(End.TOUCHED)


def _only_looks(passing: _Request) -> bool:
    """
    Whether a request only looks at a model that is there: it neither waits for anybody nor wakes
    the model, and to the router it is no use of it.
    """
    admissions, model = passing.place.admissions, passing.place.model
    there = admissions is not None and model is not None and admissions.present(model)
    return there and not passing.works


def _object(body: bytes) -> Mapping[str, object] | None:
    """The JSON object of a body, an empty one of an empty body; ``None``: it has none."""
    if not body:
        return {}
    if body.lstrip()[:1] != b"{":
        return None
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
