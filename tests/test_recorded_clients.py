"""What real clients send, through the whole gateway: the session is found, side requests spared."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import unquote

from gateway import FakeGatewayCase
from recorded import Recorded, recorded

from slotgate.config import Identity
from slotgate.identity import identify


class RecordedTests(FakeGatewayCase):
    """Every recorded request that generates something."""

    options: ClassVar[dict[str, Any]] = {"context": 100_000}

    async def test_each_is_told_what_it_is(self) -> None:
        seen = 0
        for parameter in recorded():
            one: Recorded = parameter.values[0]
            # a model for each keeps apart what the recordings have in common
            body = {**one.body, "model": f"recording {seen}", "stream": False}
            answer = await self.post(one.path, body, {**one.headers, "Host": "localhost"})
            if "x-slotgate-session" not in answer.headers:
                # what only looks, or the fake does not have
                self.assertGreaterEqual(answer.status, 400, parameter.id)
                continue
            seen += 1
            shown = answer.headers["x-slotgate-session"]
            source = answer.headers["x-slotgate-source"]
            if one.side:
                self.assertEqual((shown, answer.cache), ("none", "bypass"), parameter.id)
            elif one.session is None:
                self.assertIn(source, ("history", "system", "default"), parameter.id)
            else:
                # what goes on beside a session under its name has a name of its own
                self.assertEqual(unquote(shown).partition("~")[0], self.session(one), parameter.id)
                self.assertEqual(source, one.source, parameter.id)
        self.assertGreater(seen, 60)

    def session(self, one: Recorded) -> str:
        found = identify(one.sent(), one.body, one.system_prompt, Identity())
        self.assertEqual(found.id, one.session)
        return one.session or ""
