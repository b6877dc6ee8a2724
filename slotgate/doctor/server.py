"""
Seeing all that the doctor wants to know of one server. Nothing there is different afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater

from slotgate.config import Config, Server
from slotgate.doctor import gateway, machine, slot_files
from slotgate.doctor.facts import Contact, Folder, Model, Saving, ServerFacts, Slots
from slotgate.doctor.gguf import header_of
from slotgate.doctor.options import Options
from slotgate.doctor.reachable import NoServer, greet
from slotgate.doctor.schemes import other_url
from slotgate.doctor.slot_files import (
    DISK_SECONDS,
    Place,
    all_slots,
    has_folder,
    in_thread,
    probe,
    probe_name,
)
from slotgate.doctor.stopping import Loose, whole
from slotgate.llama import errors, models
from slotgate.llama.calls import Calls
from slotgate.llama.models import RouterProps, Status
from slotgate.llama.router import RouterClient
from slotgate.llama.upstream import Upstream
from slotgate.llama.wire import Props

#: The longest that one question may take, in seconds.
CALL_SECONDS = 10.0
#: The longest that one server may take, in seconds; it can be loading its model first.
MOST_SECONDS = 150.0
#: Between the two looks at the slots, in seconds.
BETWEEN_SECONDS = 1.0


def impatient(server: Server) -> Server:
    """A server's settings for questions that nobody waits long for."""
    return evolve(
        server,
        control_timeout_seconds=min(CALL_SECONDS, server.control_timeout_seconds),
        read_timeout_seconds=min(CALL_SECONDS, server.read_timeout_seconds),
    )


@define
class Looking:
    """Looks at one server."""

    reactor: Any
    config: Config
    server: Server
    #: Told what there is to wait for.
    tell: Callable[[str], None]
    loose: Loose = field(factory=Loose)

    async def facts(self) -> ServerFacts:
        """All that can be seen."""
        server = impatient(self.server)
        upstream = Upstream(self.reactor, server)
        facts = ServerFacts(
            server=self.server,
            routes=tuple(r for r in self.config.routes if r.server == server.name),
            contact=Contact.ANSWERS,
            local=machine.is_local(server.url),
            memory_available=machine.memory_available(),
            slotgate_runs=await gateway.runs(self.reactor, self.config),
        )
        seen = Deferred.fromCoroutine(self._seen(facts, Calls(upstream, self.reactor, server)))
        try:
            return await seen.addTimeout(MOST_SECONDS, self.reactor)
        except DeferredTimeout:
            said = f"it did not answer everything within {MOST_SECONDS:g} s"
            return evolve(facts, contact=Contact.UNREACHABLE, said=said)
        finally:
            await upstream.close()

    async def _seen(self, facts: ServerFacts, calls: Calls) -> ServerFacts:
        facts = evolve(facts, folder=await self._folder())
        try:
            said = await greet(self.config, calls, self.reactor, self.tell)
        except NoServer as nobody:
            answers_at = ""
            if nobody.contact in (Contact.UNREACHABLE, Contact.FOREIGN):
                answers_at = await other_url(self.reactor, self.server)
            return evolve(facts, contact=nobody.contact, said=str(nobody), answers_at=answers_at)
        place = Place(self.reactor, self._visible(facts))
        if isinstance(said, RouterProps):
            return await self._router(evolve(facts, router=said), calls, place)
        return await self._single(evolve(facts, build=said.build), said, calls, place)

    async def _folder(self) -> Folder | None:
        path = self.server.slot_save_path
        if path is None:
            return None
        least = int(self.server.min_free_gib * 1024**3)
        file = probe_name()

        async def look() -> Folder:
            with self.loose.file(file):
                try:
                    return await in_thread(
                        self.reactor, DISK_SECONDS, lambda: slot_files.look(path, least, file)
                    )
                except DeferredTimeout:
                    return Folder(path, False, trouble=f"no answer within {DISK_SECONDS:g} s")

        return await whole(look())

    @staticmethod
    def _visible(facts: ServerFacts) -> Any:
        folder = facts.folder
        return folder.path if folder is not None and folder.exists else None

    async def _single(
        self, facts: ServerFacts, props: Props, calls: Calls, place: Place
    ) -> ServerFacts:
        model = Model(
            id="",
            status=Status.SLEEPING if props.sleeping else Status.LOADED,
            path=props.model_path,
            total_slots=props.total_slots,
            options=self._options(facts),
            header=await self._header(facts, props.model_path),
        )
        if props.sleeping or not facts.slots_used:
            # a look would wake it
            return evolve(facts, models=(model,))
        model = await self._slots(model, calls)
        model = evolve(model, saving=Saving(await has_folder(calls, facts.slots_used[0])))
        facts, model = await self._tried(facts, model, calls, place)
        return evolve(facts, models=(model,))

    async def _router(self, facts: ServerFacts, calls: Calls, place: Place) -> ServerFacts:
        try:
            build = await calls.get("/props", _build)
            told = await RouterClient(calls).models()
        except errors.ControlError as error:
            return evolve(facts, contact=Contact.FOREIGN, said=str(error))
        found = []
        probed = place.folder is None
        for one in told:
            model = await self._model(facts, one)
            if one.status is Status.LOADED and facts.slots_used:
                # one at a time, for the models of a router are many
                model = await self._slots(model, calls, again=not probed)
                if not probed and model.saving.folder:
                    facts, model = await self._tried(facts, model, calls, place)
                    probed = model.saving.probe is not None
            found.append(model)
        return evolve(facts, build=build, models=tuple(found))

    async def _tried(
        self, facts: ServerFacts, model: Model, calls: Calls, place: Place
    ) -> tuple[ServerFacts, Model]:
        """Try a save, where there is a folder to look into and nobody has a lease on the slots."""
        if place.folder is None or model.slots is None or model.saving.folder is False:
            return facts, model
        # it can have been started since
        if facts.slotgate_runs or await gateway.runs(self.reactor, self.config):
            return evolve(facts, slotgate_runs=True), model
        trying = probe(calls, model.id, place, self._theirs(facts, model), self.loose)
        saving = await whole(trying)
        return facts, evolve(model, saving=saving)

    def _theirs(self, facts: ServerFacts, model: Model) -> Place:
        """The folder that the server was told, where that can mean the same here."""
        told = "" if model.options is None else model.options.slot_save_path
        return Place(self.reactor, Path(told) if facts.local and told.startswith("/") else None)

    async def _model(self, facts: ServerFacts, one: models.Model) -> Model:
        # an unloaded model's command line is told too, but it may not have one yet
        options = Options(one.args) if one.args else None
        path = "" if options is None else options.value("-m", "--model") or ""
        return Model(
            id=one.id,
            status=one.status,
            aliases=one.aliases,
            path=path,
            total_slots=None if options is None else options.parallel,
            options=options,
            header=await self._header(facts, path),
            saving=Saving(None if options is None else bool(options.slot_save_path)),
        )

    async def _slots(self, model: Model, calls: Calls, *, again: bool = True) -> Model:
        try:
            first = await all_slots(calls, model.id)
            second = first
            if again:
                await deferLater(self.reactor, BETWEEN_SECONDS)
                second = await all_slots(calls, model.id)
        except errors.NotLoaded:
            # it has gone meanwhile
            return model
        except errors.ControlError as error:
            return evolve(model, hidden=str(error))
        return evolve(model, slots=Slots(first, second), total_slots=len(second))

    def _options(self, facts: ServerFacts) -> Options | None:
        port = urlsplit(self.server.url).port
        return machine.options_at(port) if facts.local and port else None

    async def _header(self, facts: ServerFacts, path: str) -> Any:
        if not facts.local or not path.startswith("/"):
            return None
        try:
            return await in_thread(self.reactor, DISK_SECONDS, lambda: header_of(path))
        except DeferredTimeout:
            return None


def _build(answer: object) -> str:
    build = answer.get("build_info") if isinstance(answer, Mapping) else None
    return build if isinstance(build, str) else ""
