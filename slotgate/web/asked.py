"""
What a generation request asks for: by whom, on which route, in which session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from attrs import define, evolve, field, frozen
from twisted.logger import Logger
from twisted.web.iweb import IRequest

from slotgate.config import Route
from slotgate.conversations import Belonging, Conversations
from slotgate.histories import history_of
from slotgate.identity import NOBODY, SHARED, UNNAMED, Identified, identify
from slotgate.prompts.beginning import beginning
from slotgate.reloading import Settings
from slotgate.routes import policy_of, route_for
from slotgate.sessions import Session, SessionKey
from slotgate.side import side_request
from slotgate.slots.backend import Backend, Place
from slotgate.slots.choice import Want
from slotgate.surfaces.anthropic import normalised
from slotgate.surfaces.generation import Generation, MalformedRequest, parse
from slotgate.web.clients import Clients
from slotgate.web.names import Names
from slotgate.web.rejected import Rejected
from slotgate.web.requests import body_of, loads_model

#: What can be a model's name: it becomes part of a session's key. Lone surrogates can not be
#: written anywhere.
_MODEL = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,512}")

#: Reasons for refusing session ids that are remembered, so that each is logged once.
_MAX_TOLD = 1000


@frozen
class Asked:
    """A generation request, understood."""

    generation: Generation
    #: The model that is meant.
    asked: str | None
    route: Route
    #: What the server calls the model.
    model: str | None
    want: Want
    #: Where the request is served.
    place: Place
    #: Where the session id came from (``X-Slotgate-Source``).
    source: str
    #: Why the request is none of a conversation, though its client names one; empty: it is.
    side: str
    #: To be called when the server has worked on it.
    went_on: Callable[[], None]


@define
class Understanding:
    """Reads generation requests by the configuration."""

    _settings: Settings
    _clients: Clients
    _backends: Mapping[str, Backend]
    _conversations: Conversations
    _names: Names
    _told: set[str] = field(factory=set, init=False)
    _log: Logger = field(factory=Logger, init=False)

    async def of(self, request: IRequest, path: str) -> Asked:
        """
        What a request asks for.

        :raises Rejected: without a valid key, with a body that is no JSON object, or for a model
            that no route serves.
        """
        self._clients.owner(request.requestHeaders)
        try:
            generation = parse(path, body_of(request))
        except MalformedRequest as error:
            raise Rejected(400, str(error)) from error
        return await self.about(request, path, generation, generation.fields)

    async def about(
        self,
        request: IRequest,
        path: str,
        generation: Generation,
        fields: Mapping[str, object],
        *,
        converses: bool = True,
    ) -> Asked:
        """
        What a request asks for that was read already.

        :param path: as the client asked.
        :param fields: what the client sent, before anything was translated.
        :param converses: its messages are a conversation.
        :raises Rejected: without a valid key, or for a model that no route serves.
        """
        owner = self._clients.owner(request.requestHeaders)
        generation = self._normalised(generation)
        if generation.model is not None and not _MODEL.fullmatch(generation.model):
            raise Rejected(400, "the model is no name of a model")
        asked = None if generation.model is None else self._names.meant(generation.model)
        found = route_for(self._settings.config, asked)
        if found is None:
            raise Rejected(404, f"no route serves the model {generation.model!r}")
        route, name = found
        backend = self._backends[route.server]
        place = await backend.found(route, asked, loads=loads_model(request))
        if place.model is not None and name != route.model:
            # a wildcard's sessions belong to the model, whatever name the client has for it
            name = place.model
        client = owner.name if owner else None
        identified = NOBODY
        if route.cache:
            identified = self._identify(request, fields, generation.system_prompt)
        side = side_request(request.requestHeaders, path, fields)
        source, belonging = identified.source, Belonging(None, goes_on=False)
        if identified.id is not None and not side:
            named = SessionKey(client, name, identified.id)
            belonging, source = self._conversation(named, source, generation, converses)
            side = "" if belonging.key else f"beside session {named.shown}"
        isolated = self._clients.are_several
        policy, session, parent = policy_of(route), None, None
        if belonging.key is not None:
            begins = beginning(generation.fields)
            kept = evolve(policy, passing=belonging.passing)
            session = Session(belonging.key, source, kept, begins)
            if belonging.parent is not None:
                parent = Session(belonging.parent, source, policy, begins)
        return Asked(
            generation=generation,
            asked=asked,
            route=route,
            model=place.name,
            want=Want(
                session,
                client,
                isolated=isolated,
                parent=parent,
                anew=isolated and not belonging.goes_on and backend.keeps_prompts(place.model),
            ),
            place=place,
            source=source,
            side=side,
            went_on=belonging.went_on,
        )

    def _normalised(self, generation: Generation) -> Generation:
        found = route_for(self._settings.config, generation.model)
        if found is None or not found[0].normalise:
            return generation
        return parse(generation.path, normalised(generation.raw))

    def _conversation(
        self, named: SessionKey, source: str, generation: Generation, converses: bool
    ) -> tuple[Belonging, str]:
        """
        The conversation that a request belongs to, and where its id came from.

        :param named: what its client calls it, or what stands in for that.
        """
        identity = self._settings.config.identity
        wanted = identity.history and converses
        history = history_of(generation.fields) if wanted else None
        if history is None:
            # without a conversation there is nothing to tell by whether it goes on
            return Belonging(named, goes_on=False), source
        if source in UNNAMED:
            return self._conversations.unnamed(named.client, named.route, history), "history"
        shared = source in SHARED
        return self._conversations.named(named, history, shared=shared), source

    def _identify(
        self, request: IRequest, fields: Mapping[str, object], system_prompt: str
    ) -> Identified:
        identified = identify(
            request.requestHeaders, fields, system_prompt, self._settings.config.identity
        )
        if identified.refused and identified.refused not in self._told:
            if len(self._told) < _MAX_TOLD:
                self._told.add(identified.refused)
            self._log.warn("a request has no session: {why}", why=identified.refused)
        return identified
