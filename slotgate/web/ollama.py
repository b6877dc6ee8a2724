"""
The Ollama surface: llama-server has none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.iweb import IRequest

from slotgate.config import Route
from slotgate.llama.errors import ControlError
from slotgate.reloading import Settings
from slotgate.routes import route_for
from slotgate.slots.backend import Backend
from slotgate.slots.pool import SlotPool
from slotgate.surfaces.ollama import embeddings, models, pulls, requests
from slotgate.surfaces.ollama.answers import STREAM_TYPE, WHOLE_TYPE, without_prompt
from slotgate.surfaces.ollama.asked import Asked, Purpose
from slotgate.surfaces.ollama.clocks import Watch
from slotgate.surfaces.ollama.details import capabilities
from slotgate.surfaces.ollama.embeddings import Embed
from slotgate.surfaces.ollama.errors import OllamaError, not_supported
from slotgate.surfaces.ollama.translating import AnswerTranslation, WholeTranslation
from slotgate.surfaces.translation import Translation
from slotgate.web.asked import Understanding
from slotgate.web.clients import Clients
from slotgate.web.generations import Generations
from slotgate.web.names import Names
from slotgate.web.passing import Passing
from slotgate.web.rejected import Rejected
from slotgate.web.requests import body_of
from slotgate.web.waiting import Chance, with_model

_T = TypeVar("_T")

#: A handler answers with a body, or has written it already.
Answer = Coroutine[Any, Any, bytes | None]

#: How long a list waits for a server, in seconds: others may have models too.
LIST_SECONDS = 2.0

_PLAIN = "text/plain; charset=utf-8"
_PATTERN = frozenset("*?[")


@frozen
class _Model:
    """A model under a name that clients may use for it."""

    #: What its server tells of it.
    told: Mapping[str, object]
    backend: Backend
    #: The id by which a router knows it; ``None``: its server has one model.
    id: str | None


@define
class Ollama:
    """Answers the paths of Ollama's API."""

    _settings: Settings
    _clients: Clients
    _backends: Mapping[str, Backend]
    _pool: SlotPool
    _understanding: Understanding
    _generations: Generations
    _passing: Passing
    _names: Names
    _clock: IReactorTime
    _log: Logger = field(factory=Logger, init=False)

    @property
    def paths(self) -> Mapping[tuple[str, str], Callable[[IRequest, str], Answer]]:
        """What answers each path and method."""
        answers: dict[tuple[str, str], Callable[[IRequest, str], Answer]] = {
            ("POST", "/api/chat"): self._chat,
            ("POST", "/api/generate"): self._generate,
            ("POST", "/api/embed"): self._embed,
            ("POST", "/api/embeddings"): self._embeddings,
            ("POST", "/api/show"): self._show,
            ("POST", "/api/pull"): self._pull,
            ("GET", "/api/ps"): self._ps,
            ("GET", "/api/tags"): self._tags,
            ("HEAD", "/api/tags"): self._tags,
            ("GET", "/api/version"): self._version,
            ("HEAD", "/api/version"): self._version,
        }
        for path in ("/api/create", "/api/copy", "/api/push"):
            answers["POST", path] = self._refuse
        answers["DELETE", "/api/delete"] = self._refuse
        for method in ("POST", "HEAD"):
            answers[method, "/api/blobs/<path:digest>"] = self._refuse
        return answers

    async def root(self, request: IRequest, path: str) -> bytes | None:
        """
        ``GET /``: what Ollama's clients look for. A browser gets the server's own page.
        """
        if b"text/html" in b",".join(request.requestHeaders.getRawHeaders(b"accept", [])):
            return await self._passing.answer(request, path)
        return _told(request, models.RUNNING, _PLAIN)

    async def _chat(self, request: IRequest, path: str) -> bytes | None:
        self._clients.owner(request.requestHeaders)
        with _rejections():
            return await self._answer(request, path, requests.chat(body_of(request)))

    async def _generate(self, request: IRequest, path: str) -> bytes | None:
        self._clients.owner(request.requestHeaders)
        with _rejections():
            return await self._answer(request, path, requests.generate(body_of(request)))

    async def _answer(self, request: IRequest, path: str, asked: Asked) -> bytes | None:
        began = self._clock.seconds()
        name = self._names.meant(asked.model)
        if asked.purpose is not Purpose.GENERATE:
            await self._keep(asked.purpose, name)
            watch = Watch(began, self._clock.seconds(), self._clock.seconds)
            kind = STREAM_TYPE if asked.stream else WHOLE_TYPE
            return _told(request, without_prompt(asked, watch), kind)
        self._route(name)
        generation = asked.generation(name)
        understood = await self._understanding.about(
            request, path, generation, asked.fields, converses=asked.chats
        )
        if asked.asks_much:
            backend = self._backends[understood.route.server]
            props = await self._props_of(_Model({}, backend, understood.place.model))
            if props:
                # else it is not loaded, and nobody knows
                asked.check(capabilities({}, props))

        def translate(came: float, ready: float) -> Translation:
            return AnswerTranslation(asked, Watch(came, ready, self._clock.seconds))

        await self._generations.serve(request, path, understood, translate)
        return None

    async def _keep(self, purpose: Purpose, name: str) -> None:
        """
        Load a model, or save what is in its slots and unload it where the server can do that.

        :raises Rejected: it can not be loaded, or there is none.
        """
        route = self._route(name)
        backend = self._backends[route.server]
        place = await backend.found(route, name)
        if not backend.is_router:
            # it has its model, or it is not there
            await self._found(name)
        elif place.model is None:
            raise Rejected(404, f"model '{name}' not found")
        if purpose is Purpose.LOAD:

            async def loaded(chance: Chance) -> None:
                """Nothing more."""

            await with_model(backend, place, loaded)
        elif place.model is not None:
            try:
                await backend.unload(place.model)
            except ControlError as error:
                raise Rejected(502, str(error)) from error
        else:
            for slot in self._pool.of_model(backend.server.name, ""):
                await slot.save(patient=False)

    def _route(self, name: str) -> Route:
        found = route_for(self._settings.config, name)
        if found is None:
            raise Rejected(404, f"model '{name}' not found")
        return found[0]

    async def _embed(self, request: IRequest, path: str) -> bytes | None:
        self._clients.owner(request.requestHeaders)
        with _rejections():
            return await self._embedded(request, embeddings.embed(body_of(request)))

    async def _embeddings(self, request: IRequest, path: str) -> bytes | None:
        self._clients.owner(request.requestHeaders)
        with _rejections():
            return await self._embedded(request, embeddings.embeddings(body_of(request)))

    async def _embedded(self, request: IRequest, asked: Embed) -> bytes | None:
        if not asked.texts:
            return _told(request, embeddings.without_texts(asked))
        began = self._clock.seconds()
        watch = Watch(began, began, self._clock.seconds)
        translation = WholeTranslation(
            lambda body: embeddings.answer(asked, watch, body), embeddings.refused
        )
        name = self._names.meant(asked.model)
        target = embeddings.PATH.encode()
        fields: dict[str, object] = {"input": asked.texts}
        await self._passing.send(request, name, target, fields, translation)
        return None

    async def _tags(self, request: IRequest, path: str) -> bytes:
        self._clients.owner(request.requestHeaders)
        known, _ = await self._models()
        return _told(request, models.tags(_listing(known), await self._props(known)))

    async def _ps(self, request: IRequest, path: str) -> bytes:
        self._clients.owner(request.requestHeaders)
        known, _ = await self._models()
        now = self._clock.seconds()
        return _told(request, models.ps(_listing(known), now, await self._props(known)))

    async def _show(self, request: IRequest, path: str) -> bytes:
        self._clients.owner(request.requestHeaders)
        with _rejections():
            asked = models.shown(body_of(request))
            name, model = await self._found(asked)
            props = await self._props_of(model)
            return _told(request, models.show(asked, name, model.told, props))

    async def _pull(self, request: IRequest, path: str) -> bytes:
        self._clients.owner(request.requestHeaders)
        with _rejections():
            pull = pulls.pull(body_of(request))
            try:
                name, model = await self._found(pull.model)
            except OllamaError:
                raise pull.missing() from None
            body = pull.done(name, models.size_of(model.told))
            return _told(request, body, STREAM_TYPE if pull.stream else WHOLE_TYPE)

    async def _version(self, request: IRequest, path: str) -> bytes:
        self._clients.owner(request.requestHeaders)
        return _told(request, models.version())

    async def _refuse(self, request: IRequest, path: str) -> bytes:
        self._clients.owner(request.requestHeaders)
        error = not_supported(path)
        raise Rejected(error.status, error.message)

    async def _models(self) -> tuple[Mapping[str, _Model], set[str]]:
        """
        The models of all servers that answer, by the names that clients may use; and the names of
        the servers that do not.
        """
        backends = list(self._backends.values())
        listings = await _together(self._listed(backend) for backend in backends)
        known: dict[str, _Model] = {}
        silent = set()
        for backend, listing in zip(backends, listings, strict=True):
            if listing is None:
                silent.add(backend.server.name)
                continue
            for name, told in listing.items():
                model = _Model(told, backend, name if backend.is_router else None)
                for served in self._names_of(name, backend):
                    known.setdefault(served, model)
        return known, silent

    async def _listed(self, backend: Backend) -> Mapping[str, Mapping[str, object]] | None:
        """What a server tells; ``None``: nothing, in the time that a list may take."""

        async def listed() -> Mapping[str, Mapping[str, object]]:
            await backend.known()
            return models.listed(await backend.inventory.models())

        asking = Deferred.fromCoroutine(listed())
        asking.addTimeout(LIST_SECONDS, self._clock)
        try:
            return await asking
        except (ControlError, DeferredTimeout) as error:
            self._log.debug("{server}: {error}", server=backend.server.name, error=error)
            return None

    async def _found(self, asked: str) -> tuple[str, _Model]:
        """
        A model by the name that a client has for it; behind a wildcard a server's only model has
        any.

        :raises OllamaError: there is none.
        :raises Rejected: its server does not answer.
        """
        known, silent = await self._models()
        try:
            name = models.found(asked, _listing(known))
            return name, known[name]
        except OllamaError:
            route = self._route(self._names.meant(asked))
            if route.server in silent:
                raise Rejected(502, f"server {route.server!r} does not answer") from None
            backend = self._backends[route.server]
            only = [(name, one) for name, one in known.items() if one.backend is backend]
            if backend.is_router or not only:
                raise
            return only[0]

    def _names_of(self, name: str, backend: Backend) -> Iterator[str]:
        """What clients may call a model: routes of its own, and its name where a route has it."""
        for route in self._settings.config.routes:
            if route.server != backend.server.name or _PATTERN & set(route.model):
                continue
            place = backend.place(route, route.model)
            if not backend.is_router or place.model == name:
                yield route.model
        found = route_for(self._settings.config, name)
        if found is not None and found[0].server == backend.server.name:
            yield name

    async def _props(self, known: Mapping[str, _Model]) -> dict[str, Mapping[str, object]]:
        """The properties of the models that are in memory, as far as their servers tell in time."""
        loaded = {
            name: model
            for name, model in known.items()
            if model.id is None or model.backend.tracker.model(model.id).status.running
        }
        told = await _together(self._props_of(model) for model in loaded.values())
        return dict(zip(loaded, told, strict=True))

    async def _props_of(self, model: _Model) -> Mapping[str, object]:
        asking = Deferred.fromCoroutine(model.backend.inventory.props(model.id))
        asking.addTimeout(LIST_SECONDS, self._clock)
        try:
            return await asking
        except DeferredTimeout:
            return {}


async def _together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """
    The results of coroutines that run side by side.

    :raises CancelledError: nobody waits any longer; ``gatherResults`` alone would wrap it up.
    """
    running = [Deferred.fromCoroutine(one) for one in work]
    try:
        results: list[_T] = await gatherResults(running, consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()
        raise
    return results


def _listing(known: Mapping[str, _Model]) -> dict[str, Mapping[str, object]]:
    return {name: model.told for name, model in known.items()}


@contextmanager
def _rejections() -> Iterator[None]:
    """
    :raises Rejected: instead of :class:`OllamaError`.
    """
    try:
        yield
    except OllamaError as error:
        raise Rejected(error.status, error.message) from error


def _told(request: IRequest, body: bytes, kind: str = WHOLE_TYPE) -> bytes:
    """An answer of our own."""
    answer: Any = request
    answer.setHeader(b"Content-Type", kind.encode())
    answer.setHeader(b"Content-Length", b"%d" % len(body))
    return body
