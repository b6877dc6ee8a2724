"""
What is behind a server's address, and where on it a request is served.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from contextlib import suppress

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.config import Route, Server
from slotgate.llama.agreement import disagreements, limit_of
from slotgate.llama.control import Control
from slotgate.llama.errors import ControlError, ProcessLost
from slotgate.llama.following import Following
from slotgate.llama.inventory import Inventory
from slotgate.llama.models import Model, RouterProps, Status
from slotgate.llama.router import RouterControl
from slotgate.llama.tracker import Tracker
from slotgate.routes import upstream_model
from slotgate.slots.address import Address
from slotgate.slots.admission import Admission, Admissions
from slotgate.slots.pool import SlotPool, log_failure
from slotgate.slots.slot import Slot
from slotgate.snapshots.index import Index
from slotgate.snapshots.store import Snapshots

#: How long a model may take to end whose process does not answer any longer. A router kills it
#: after 10 s, its ``stop-timeout``.
ENDING_SECONDS = 15.0


class Mode(enum.Enum):
    """What a server is."""

    UNKNOWN = "unknown"
    SINGLE = "single"
    ROUTER = "router"


@frozen
class Place:
    """Where a request is served."""

    #: The slot it needs; ``None``: it needs none.
    address: Address | None
    #: The id by which a router knows the model; ``None``: it does not, or there is one model.
    model: str | None = None
    #: What the server is to be told.
    name: str | None = None
    #: What lets requests for that model in.
    admissions: Admissions | None = None


@define(eq=False)
class Backend:
    """
    One configured server.

    Whether it is a router is found out, and again once contact was lost. As long as that is not
    known it is taken for a server with one model: requests go on.
    """

    server: Server
    _control: RouterControl
    tracker: Tracker
    admissions: Admissions
    _following: Following
    _control_of: Callable[[str], Control]
    #: What the server tells of its models.
    inventory: Inventory
    #: What is saved of the server's slots.
    snapshots: Snapshots
    _pool: SlotPool
    _index: Index
    #: The slots of each model that routes with a cache use.
    _slots: Callable[[], Collection[int]]
    mode: Mode = field(default=Mode.UNKNOWN, init=False)
    _router: RouterProps = field(default=RouterProps(0, True), init=False)
    #: Runs while it is being found out what the server is.
    _looking: Deferred[None] | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)
    _waiting: list[Deferred[None]] = field(factory=list, init=False)
    #: What was found out last, one sentence each, and whether somebody should put it right.
    findings: dict[str, bool] = field(factory=dict, init=False)
    _log: Logger = field(factory=Logger, init=False)

    def start(self) -> None:
        """Begin: see what the server is, and what the slotgate before us left in its slots."""
        for slot in self._slots():
            self._pool.at(Address(self.server.name, "", slot))
        self.known().addCallback(self._recall_single).addErrback(log_failure)

    def _recall_single(self, _: object) -> None:
        if self._stopped:
            return
        for slot in self._pool.of_model(self.server.name, ""):
            slot.recall().addErrback(log_failure)

    def stop(self) -> None:
        """Let nobody in any more, and follow nothing."""
        self._stopped = True
        if self._looking is not None:
            self._looking.cancel()
        self.admissions.stop()
        if self._following.running:
            self._following.stopService()

    @property
    def limit(self) -> int:
        """How many models a router may hold; 0: no limit."""
        return limit_of(self.server, self._router)

    @property
    def is_router(self) -> bool:
        """Whether it has many models, as far as is known."""
        return self.mode is Mode.ROUTER

    def keeps_prompts(self, model: str | None) -> bool:
        """Whether the server may keep prompts in its memory beside the slots."""
        return model is None or self.tracker.model(model).option("--cache-ram") != "0"

    async def unload(self, model: str) -> None:
        """
        Save what is in the slots of a router's model, and unload it.

        :raises ControlError: it was not unloaded.
        """
        await self.admissions.unload(model, lambda: self._control.unload(model))

    def lost(self) -> None:
        """Contact was lost: what answers next may be something else."""
        self.mode = Mode.UNKNOWN

    def known(self) -> Deferred[None]:
        """
        A Deferred that fires when it was found out what the server is, as far as it says.
        """
        if self.mode is not Mode.UNKNOWN:
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        if self._looking is None:
            looking = Deferred.fromCoroutine(self._look())
            if not looking.called:
                self._looking = looking
            looking.addBoth(self._looked)
        return waiting

    def _looked(self, result: object) -> None:
        self._looking = None
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)
        if isinstance(result, Failure) and not result.check(CancelledError):
            self._log.failure("{server}: what it is is not known", result, server=self.server.name)

    async def _look(self) -> None:
        """Cancelled only when we stop: several may wait for it."""
        try:
            router = await self._control.router()
            if router is None:
                self._found_single()
            else:
                await self._found_router(router)
        except ControlError as error:
            self._log.debug(
                "{server}: what it is is not known: {error}", server=self.server.name, error=error
            )

    def _found_single(self) -> None:
        self.mode = Mode.SINGLE
        if self._following.running:
            self._following.stopService()
        self._pool.drop(self.server.name, lambda model: bool(model))
        self._tell({"it serves one model": False})

    async def _found_router(self, router: RouterProps) -> None:
        self._router = router
        await self.tracker.look()
        self.mode = Mode.ROUTER
        self._pool.drop(self.server.name, lambda model: not model)
        models = list(self.tracker)
        what = (
            f"it is a router with {len(models)} models, and holds at most"
            f" {self.limit or 'any number'} of them at once"
        )
        problems = disagreements(self.server, self._slots(), router, models)
        self._tell({what: False, **dict.fromkeys(problems, True)})
        if not self._following.running and not self._stopped:
            self._following.startService()
            await self._recall()

    async def _recall(self) -> None:
        """See what the models' slots still hold of what the slotgate before us left in them."""
        for model, slot in await self._index.left_of(self.server.name):
            if self.tracker.model(model).status is Status.LOADED and slot in self._slots():
                address = Address(self.server.name, model, slot)
                self._pool.at(address).recall().addErrback(log_failure)

    def _tell(self, found: dict[str, bool]) -> None:
        """What is found now takes the place of what was; the log is told what is new."""
        before, self.findings = self.findings, found
        for what, warn in found.items():
            if what not in before:
                tell = self._log.warn if warn else self._log.info
                tell("{server}: {what}", server=self.server.name, what=what)

    def lose(self, model: str) -> None:
        """A router's model was unloaded or fell asleep: its slots are gone."""
        for slot in self._pool.of_model(self.server.name, model):
            slot.lose()

    async def missed(self, admission: Admission) -> None:
        """A model was not there though it should have been: see what has become of it."""

        def ended(model: Model) -> bool:
            return not model.status.running or self.tracker.ends(model.id) > admission.ends

        try:
            await self.tracker.look()
            if ended(self.tracker.model(admission.model)):
                return
            with suppress(ProcessLost):
                # it answers, so it was something else
                await self._control_of(admission.model).props()
                return
            # on its way out it is "loaded" until its process has ended
            await self.tracker.until(ended, admission.model, ENDING_SECONDS)
        except ControlError as error:
            self._log.debug("{server}: {error}", server=self.server.name, error=error)

    def slot_named(self, place: Place, name: str) -> Slot | None:
        """
        The slot that a client names in a path; ``None`` when none of ours can be meant.

        llama-server does not check the number: ``0abc`` is 0, and 7 and -1 wrap around to a slot
        that exists. So every name that is not one of ours may mean one of ours.
        """
        ours = sorted(self._slots())
        if not ours or (self.mode is Mode.ROUTER and place.model is None):
            return None
        number = next((slot for slot in ours if str(slot) == name), ours[0])
        return self._pool.at(Address(self.server.name, place.model or "", number))

    async def is_other(self, place: Place) -> bool:
        """Whether a place of a server with one model turns out to be none: it is a router."""
        if self.mode is Mode.SINGLE:
            return False
        await self.known()
        return self.is_router and place.model is None

    def still(self, place: Place) -> Place:
        """A place found before a wait: none of ours where the server became something else."""
        router = place.address is not None and bool(place.address.model)
        return Place(None) if router and self.mode is Mode.SINGLE else place

    async def found(self, route: Route, asked: str | None, *, loads: bool = True) -> Place:
        """
        Where a request is served.

        :param asked: the model that the client asks for.
        :param loads: whether a router may load the model for it.
        """
        await self.known()
        place = self.place(route, asked, loads=loads)
        if self.mode is Mode.ROUTER and place.model is None and place.name is not None:
            # a router can get new models at any time
            with suppress(ControlError):
                await self.tracker.look()
            place = self.place(route, asked, loads=loads)
        return place

    def place(self, route: Route, asked: str | None, *, loads: bool = True) -> Place:
        """As :meth:`found`, by what is known now."""
        number = route.slots[0]
        cached = number in self._slots()
        server = self.server.name
        name = upstream_model(route, asked)
        if self.mode is not Mode.ROUTER:
            return Place(Address(server, "", number) if cached else None, name=name)
        if not route.upstream_model and asked is not None and self.tracker.id_of(asked):
            # a name of the router's own, whatever it begins with
            name = asked
        known = None if name is None else self.tracker.id_of(name)
        if known is None:
            return Place(None, name=name)
        loads = loads and self._router.autoload
        if not loads and not self.tracker.model(known).status.running:
            return Place(None, known, name)
        address = Address(server, known, number) if cached else None
        return Place(address, known, name, self.admissions)
