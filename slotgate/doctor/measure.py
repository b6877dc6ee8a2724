"""
What a switch costs on a server, tried out in one of its slots.

What the slot holds is put back afterwards, where that can be done. Nothing is done while slotgate
runs: it would find its slots used by somebody else, and lose what is not saved.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater

from slotgate.config import Server
from slotgate.doctor.facts import Contact, Measured, Measurement, Model, ServerFacts
from slotgate.doctor.reading import read_prompt
from slotgate.doctor.slot_files import Place, all_slots, probe_name
from slotgate.doctor.stopping import END_SECONDS, Loose, whole
from slotgate.llama import errors
from slotgate.llama.calls import Calls
from slotgate.llama.client import LlamaClient
from slotgate.llama.models import Status
from slotgate.llama.upstream import Upstream
from slotgate.llama.wire import SlotStatus
from slotgate.units import megabytes

#: How long reading the prompt may take, in seconds.
READ_SECONDS = 600.0
#: Tokens that are asked after the restore, beyond what was restored: the next turn.
MORE_TOKENS = 16
#: Tokens of a slot that are left free.
_SPARE = 64
#: How long a server that was sent a request can take to begin with it, in seconds.
TAKEN_SECONDS = 2.0
_POLL_SECONDS = 0.1
#: No request has this number.
_ASKED = -2


class NotMeasured(Exception):
    """It could not be measured; the message says why."""


@define
class Measuring:
    """Measures on one server. A measurement is for one use."""

    reactor: Any
    facts: ServerFacts
    #: About how long the prompt is to be.
    tokens: int
    #: Whether a slotgate that uses the server runs.
    slotgate_runs: Callable[[], Awaitable[bool]]
    loose: Loose = field(factory=Loose)
    _calls: Calls = field(init=False)
    _place: Place = field(init=False)
    #: The request that used the slot last; :data:`_ASKED`: one of ours that is on its way.
    _task: int | None = field(default=None, init=False)
    #: Files of ours that there may be.
    _saved: set[str] = field(factory=set, init=False)
    _notes: list[str] = field(factory=list, init=False)
    _troubles: list[str] = field(factory=list, init=False)

    async def measurement(self) -> Measurement:
        """What it costs, or why that is not known."""
        if self.facts.contact is not Contact.ANSWERS or not self.facts.slots_used:
            return Measurement(None, "there is no slot to measure in")
        upstream = Upstream(self.reactor, _patient(self.facts.server))
        self._calls = Calls(upstream, self.reactor, _patient(self.facts.server))
        folder = self.facts.folder
        self._place = Place(self.reactor, folder.path if folder and folder.exists else None)
        measured, why = None, ""
        try:
            await self._alone()
            measured = await self._measured(self._model(), self.facts.slots_used[0])
        except (NotMeasured, errors.ControlError) as error:
            why = str(error)
        finally:
            await upstream.close()
        return Measurement(measured, why, tuple(self._notes), tuple(self._troubles))

    def _model(self) -> Model:
        for model in self.facts.models:
            if model.status is not Status.LOADED:
                continue
            if model.saving.folder is False or model.saving.failed:
                raise NotMeasured("it saves no slots")
            return model
        raise NotMeasured("no model is loaded")

    async def _measured(self, model: Model, slot: int) -> Measured:
        before = await self._idle(model, slot)
        self._task = before.task
        if before.n_ctx is not None and self.tokens > before.n_ctx - _SPARE:
            raise NotMeasured(
                f"a slot holds {before.n_ctx} tokens, and {self.tokens} are asked for"
            )
        control = LlamaClient(self._calls, model.id)
        prompt = await self._prompt(model)
        backup = await self._backup(control, before)
        try:
            # up to here nothing was changed
            await self._ours(model, slot)
        except (CancelledError, NotMeasured, errors.ControlError):
            await whole(self._clean(control, slot, backup, emptied=False))
            raise
        file = probe_name()
        name = f"slot {slot} of {self.facts.server.name}"
        if backup:
            self.loose.tie(backup, self._lost(model, before, backup))
        else:
            text = f"{name} was empty, and can hold a prompt of the doctor's now"
            self.loose.tie(name, text)
        try:
            return await self._tried(model, control, slot, prompt, file)
        finally:
            await whole(self._as_before(model, control, before, backup, file))

    async def _idle(self, model: Model, slot: int) -> SlotStatus:
        try:
            slots = await all_slots(self._calls, model.id)
        except errors.ControlError as error:
            raise NotMeasured(f"its slots are not seen ({error})") from error
        for status in slots:
            if status.id == slot:
                if status.busy:
                    raise NotMeasured(f"slot {slot} is busy")
                return status
        raise NotMeasured(f"it has no slot {slot}")

    async def _alone(self) -> None:
        """
        See that no slotgate runs, which alone may use its slots.

        :raises NotMeasured: one does.
        """
        if await self.slotgate_runs():
            raise NotMeasured(
                "a slotgate with this configuration runs, and only it may use its slots: stop it"
                " first, or measure on another server"
            )

    async def _ours(self, model: Model, slot: int) -> None:
        """
        See that nobody else used the slot meanwhile.

        :raises NotMeasured: somebody did, and what is in it is theirs; or slotgate was started.
        """
        await self._alone()
        if (await self._idle(model, slot)).task != self._task:
            raise NotMeasured(f"somebody else used slot {slot} meanwhile")

    async def _prompt(self, model: Model) -> list[int]:
        """Tokens of a text that no cache knows."""
        words = (f"{secrets.token_hex(3)} says {number}." for number in range(self.tokens))
        body = {"content": " ".join(words), "add_special": True}
        answer = await self._post("/tokenize", model, body)
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or len(tokens) < self.tokens + MORE_TOKENS:
            raise NotMeasured("/tokenize made no tokens of a text")
        return tokens[: self.tokens + MORE_TOKENS]

    async def _backup(self, control: LlamaClient, before: SlotStatus) -> str:
        """
        Save what the slot holds; the file's name, empty where it holds nothing.

        :raises NotMeasured: it would be lost.
        """
        if not before.tokens:
            return ""
        file = probe_name()
        self._expect(file)
        try:
            saved = await whole(control.save(before.id, file))
        except errors.ControlError as error:
            await self._forget(file)
            raise NotMeasured(_would_be_lost(before, str(error))) from error
        except CancelledError:
            await whole(self._clean(control, before.id, file, emptied=False))
            raise
        if saved.tokens != before.tokens:
            await self._forget(file)
            raise NotMeasured(_would_be_lost(before, f"only {saved.tokens} were saved"))
        return file

    def _expect(self, file: str) -> None:
        """There can be a file of ours from now on."""
        self._saved.add(file)
        self.loose.tie(file, f"{file} may be in the folder of slot files, and can be deleted")

    async def _forget(self, file: str) -> None:
        """Delete a file that is of no use."""
        self._saved.discard(file)
        if not await self._place.delete(file):
            self.loose.untie(file)

    def _lost(self, model: Model, before: SlotStatus, backup: str) -> str:
        """What is to be said, and done, if the slot is left with something else in it."""
        command = restore_command(self.facts.server, model.id, before.id, backup)
        return (
            f"the {before.tokens} tokens of slot {before.id} of {self.facts.server.name} are in"
            f" {self._where(backup)}, and this puts them back: {command}"
        )

    def _where(self, file: str) -> str:
        folder = self._place.folder
        return file if folder is None else str(folder / file)

    async def _tried(
        self, model: Model, control: LlamaClient, slot: int, prompt: list[int], file: str
    ) -> Measured:
        asked = await self._ask(model, slot, prompt[: self.tokens])
        began = self.reactor.seconds()
        self._expect(file)
        saved = await whole(control.save(slot, file))
        save_seconds = self.reactor.seconds() - began
        if not saved.tokens:
            raise NotMeasured("the save saved nothing: do idle slots lose what they hold (-np)?")
        await self._ours(model, slot)
        await whole(control.erase(slot))
        began = self.reactor.seconds()
        await whole(control.restore(slot, file))
        restore_seconds = self.reactor.seconds() - began
        await self._ours(model, slot)
        again = await self._ask(model, slot, prompt)
        return Measured(
            model=model.id,
            tokens=int(asked["prompt_n"]),
            read_seconds=asked["prompt_ms"] / 1000,
            save_seconds=save_seconds,
            restore_seconds=restore_seconds,
            size=saved.size,
            reused=int(again["cache_n"]),
            read_again=int(again["prompt_n"]),
        )

    async def _ask(self, model: Model, slot: int, prompt: list[int]) -> Mapping[str, float]:
        before, self._task = self._task, _ASKED
        try:
            timings = await read_prompt(self._calls, model.id, slot, prompt, READ_SECONDS)
        except CancelledError:
            with suppress(NotMeasured):
                self._task = await whole(self._at_rest(model, slot, before))
            raise
        self._task = (await self._idle(model, slot)).task
        if timings is None:
            raise NotMeasured("its answer has no timings")
        return timings

    async def _at_rest(self, model: Model, slot: int, before: int | None) -> int | None:
        """
        Wait until the slot has done with a request of ours that was cut off.

        :param before: the request that used the slot before it.
        :returns: the request that used the slot last.
        """
        began = self.reactor.seconds()
        while True:
            status = None
            try:
                slots = await all_slots(self._calls, model.id)
                status = next((one for one in slots if one.id == slot), None)
            except errors.ControlError as error:
                # it can be too busy to answer
                if self.reactor.seconds() - began >= END_SECONDS:
                    raise NotMeasured(f"its slots are not seen ({error})") from error
            # the server can have it, and not have begun with it
            late = self.reactor.seconds() - began >= TAKEN_SECONDS
            if status is not None and not status.busy and (late or status.task != before):
                return status.task
            await deferLater(self.reactor, _POLL_SECONDS)

    async def _post(self, path: str, model: Model, body: dict[str, object]) -> Mapping[str, object]:
        if model.id:
            path, body = f"{path}?autoload=false", {"model": model.id, **body}
        answer = await self._calls.post(path, body)
        if not isinstance(answer, dict):
            raise NotMeasured(f"{path} answered no object")
        return answer

    async def _as_before(
        self, model: Model, control: LlamaClient, before: SlotStatus, backup: str, file: str
    ) -> None:
        emptied = await self._put_back(model, control, before, backup)
        await self._clean(control, before.id, file, emptied=emptied)

    async def _put_back(
        self, model: Model, control: LlamaClient, before: SlotStatus, backup: str
    ) -> bool:
        """
        Let the slot hold what it held.

        :returns: whether it is empty now.
        """
        slot = before.id
        kept = f". {self._lost(model, before, backup)}" if backup else ""
        what = f"the {before.tokens} tokens of slot {slot}" if backup else f"slot {slot} as it was"
        try:
            await (self._alone() if self._task == _ASKED else self._ours(model, slot))
            if not backup:
                await control.erase(slot)
                self.loose.untie(f"slot {slot} of {self.facts.server.name}")
                return True
            restored = await control.restore(slot, backup)
        except (NotMeasured, errors.ControlError) as error:
            self._troubles.append(f"{what} could not be put back: {error}{kept}")
            return False
        self._expect(backup)
        self._notes.append(f"The {restored.tokens} tokens that slot {slot} held are in it again")
        if await self._place.size(backup) is None or await self._place.delete(backup):
            self._troubles.append(f"{backup}, with what slot {slot} held, stays in the folder")
        else:
            self.loose.untie(backup)
        return False

    async def _clean(self, control: LlamaClient, slot: int, file: str, *, emptied: bool) -> None:
        """Delete a file of the measurement, or make it small."""
        if file not in self._saved:
            return
        if await self._place.size(file) is not None:
            if kept := await self._place.delete(file):
                self._troubles.append(f"{file} could not be deleted: {kept}")
            else:
                self.loose.untie(file)
            return
        if emptied:
            try:
                # it is out of our reach, but the server can make it small
                saved = await control.save(slot, file)
            except errors.ControlError as error:
                self._troubles.append(f"{file} may stay in the server's folder: {error}")
                return
            self._notes.append(f"{file} ({megabytes(saved.size)}) stays in the server's folder")
        else:
            self._troubles.append(f"{file} stays in the server's folder")


def _would_be_lost(before: SlotStatus, why: str) -> str:
    return f"slot {before.id} holds {before.tokens} tokens that would be lost ({why})"


def restore_command(server: Server, model: str, slot: int, file: str) -> str:
    """What a person types to have a file restored. The key is not in it."""
    target, body = f"/slots/{slot}?action=restore", {"filename": file}
    if model:
        target, body = f"{target}&autoload=false", {"model": model, **body}
    words = ["curl", shlex.quote(f"{server.url.rstrip('/')}{target}")]
    if server.ca_file is not None:
        words.append(f"--cacert {shlex.quote(str(server.ca_file))}")
    if server.api_key:
        words.append("-H 'Authorization: Bearer KEY'")
    words.append(f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}")
    return " ".join(words)


def _patient(server: Server) -> Server:
    seconds = max(READ_SECONDS, server.control_timeout_seconds)
    return evolve(server, control_timeout_seconds=seconds, read_timeout_seconds=seconds)
