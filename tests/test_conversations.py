"""Which conversation a request goes on with."""

from __future__ import annotations

from itertools import count

from doubles import memory_database
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from slotgate import conversations
from slotgate.conversations import Conversations
from slotgate.histories import History, history_of
from slotgate.sessions import SessionKey
from slotgate.snapshots.index import Index

LONG = "word " * 400


class ConversationsCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.index = Index(memory_database())
        self.known = self.new()

    def new(self) -> Conversations:
        """What a slotgate knows that has just started."""
        numbers = count(len(self.remembered()))
        new = Conversations(self.index, Clock().seconds, lambda: f"{next(numbers)}")
        new.recall(self.remembered())
        return new

    def remembered(self) -> list[conversations.Conversation]:
        found: list[conversations.Conversation] = self.successResultOf(
            Deferred.fromCoroutine(self.index.conversations())
        )
        return found

    def history(self, *texts: str, system: str = "Be brief.") -> History:
        messages = [{"role": "system", "content": system}] if system else []
        for number, text in enumerate(texts):
            messages.append({"role": ("user", "assistant")[number % 2], "content": text})
        found = history_of({"messages": messages})
        assert found is not None
        return found


class UnnamedTests(ConversationsCase):
    """Clients that name nothing."""

    def session(self, *texts: str, client: str | None = None, route: str = "*") -> str:
        found = self.known.unnamed(client, route, self.history(*texts))
        assert found.key is not None
        found.went_on()
        return found.key.id

    def test_chats_over_one_system_prompt_stay_apart_and_go_on(self) -> None:
        a, b = self.session("Alps?"), self.session("Baltic?")
        self.assertNotEqual(a, b)
        self.assertEqual(self.session("Alps?", "High.", "How high?"), a)
        self.assertEqual(self.session("Baltic?", "Flat.", "How flat?"), b)
        self.assertEqual(self.session("Alps?", "High.", "How high?", "4,810 m", "Where?"), a)

    def test_the_last_answer_may_be_edited_or_left_out(self) -> None:
        a = self.session("Alps?")
        self.assertEqual(self.session("Alps?", "Edited.", "How high?"), a)

    def test_a_repeated_request_is_the_same_turn(self) -> None:
        self.assertEqual(self.session("Alps?"), self.session("Alps?"))

    def test_a_fork_is_a_session_of_its_own(self) -> None:
        a = self.session("Alps?")
        self.session("Alps?", "High.", "How high?")
        fork = self.session("Alps?", "High.", "Who lives there?")
        self.assertNotEqual(fork, a)
        self.assertEqual(self.session("Alps?", "High.", "How high?", "Very.", "So?"), a)
        self.assertEqual(self.session("Alps?", "High.", "Who lives there?", "I.", "So?"), fork)

    def test_a_fork_begins_as_what_it_came_from(self) -> None:
        a = self.session("Alps?", "High.", "How high?")
        found = self.known.unnamed(None, "*", self.history("Alps?", "High.", "Who lives there?"))
        self.assertEqual(found.parent, SessionKey(None, "*", a))
        self.assertFalse(found.goes_on)

    def test_what_the_server_never_worked_on_changes_nothing(self) -> None:
        a = self.session("Alps?")
        self.known.unnamed(None, "*", self.history("Alps?", "High.", "Refused?"))
        self.assertEqual(self.session("Alps?", "High.", "In other words?"), a)

    def test_the_time_of_day_in_the_system_prompt_does_not_part_it(self) -> None:
        def at(time: str, *texts: str) -> conversations.Belonging:
            found = self.known.unnamed(None, "*", self.history(*texts, system=f"It is {time}."))
            found.went_on()
            return found

        second = at("12:01", "Alps?", "High.", "How high?")
        third = at("12:02", "Alps?", "High.", "How high?", "Very.", "So?")
        self.assertEqual((third.key, third.goes_on), (second.key, False))
        # but two chats that only begin alike are two
        self.assertNotEqual(at("12:03", "Hi").key, at("12:04", "Hi").key)

    def test_many_questions_that_nobody_asks_on_from_are_not_worth_keeping(self) -> None:
        def ask(*texts: str) -> bool:
            found = self.known.unnamed(None, "*", self.history(*texts))
            found.went_on()
            return found.passing

        asked = [ask(f"What is {number}?") for number in range(7)]
        self.assertEqual(asked, [False] * 4 + [True] * 3)
        # until somebody does
        self.assertFalse(ask("What is 6?", "Six.", "And then?"))
        self.assertFalse(ask("What is 7?"))

    def test_clients_and_routes_do_not_meet(self) -> None:
        sessions = {
            self.session("Alps?", client=client, route=route)
            for client in (None, "ann", "bob")
            for route in ("alpha", "beta")
        }
        self.assertEqual(len(sessions), 6)

    def test_a_restart_of_slotgate_forgets_nobody(self) -> None:
        a = self.session("Alps?")
        self.known = self.new()
        self.assertEqual(self.session("Alps?", "High.", "How high?"), a)

    def test_there_is_a_limit_and_the_oldest_go_first(self) -> None:
        self.patch(conversations, "MOST", 3)
        first = self.session("0?")
        kept = [self.session(f"{number}?") for number in range(1, 4)]
        self.assertEqual(len(self.remembered()), 3)
        self.assertEqual(self.session("3?", "Yes.", "And?"), kept[2])
        self.assertNotEqual(self.session("0?", "Yes.", "And?"), first)


class NamedTests(ConversationsCase):
    """One name for a conversation, and for what is asked beside it."""

    KEY = SessionKey(None, "*", "chat-7")

    def session(self, *texts: str, system: str = "Be brief.", shared: bool = False) -> str | None:
        found = self.known.named(self.KEY, self.history(*texts, system=system), shared=shared)
        found.went_on()
        return None if found.key is None else found.key.id

    def test_a_conversation_keeps_its_name(self) -> None:
        self.assertEqual(self.session(LONG), "chat-7")
        self.assertEqual(self.session(LONG, "Yes.", "And?"), "chat-7")

    def test_a_title_beside_it_is_nobody(self) -> None:
        self.session(LONG)
        self.assertIsNone(self.session("Find a title.", system="You make titles."))
        self.assertIsNone(self.session("Find tags.", system=""))
        self.assertEqual(self.session(LONG, "Yes.", "And?"), "chat-7")

    def test_what_goes_on_beside_it_is_a_session_of_its_own(self) -> None:
        self.session(LONG)
        self.assertIsNone(self.session("Look for it.", system="You search."))
        again = self.session("Look for it.", "Where?", "There.", system="You search.")
        self.assertNotIn(again, (None, "chat-7"))
        third = ("Look for it.", "Where?", "There.", "Done.", "More.")
        self.assertEqual(self.session(*third, system="You search."), again)
        self.assertEqual(self.session(LONG, "Yes.", "And?"), "chat-7")

    def test_a_conversation_that_was_made_shorter_goes_on_as_one_of_its_own(self) -> None:
        self.session(LONG, LONG, LONG)
        # it could be a title for it
        self.assertIsNone(self.session("In short: all is well."))
        short = self.session("In short: all is well.", "Good.", "And?")
        self.assertNotIn(short, (None, "chat-7"))
        self.assertEqual(self.session("In short: all is well.", "Good.", "And?", "A.", "B"), short)

    def test_what_is_beside_it_may_have_its_system_prompt_or_none_at_all(self) -> None:
        for system in ("Be brief.", ""):
            self.session(LONG, "Yes.", LONG, system=system)
            self.assertIsNone(self.session("Find a title.", system=system))
            self.assertEqual(
                self.session(LONG, "Yes.", LONG, "Yes.", "So?", system=system), "chat-7"
            )

    def test_what_is_as_long_and_another_conversation_has_its_own_name(self) -> None:
        self.session(LONG)
        other = self.session(LONG.replace("word", "text"), system="Other.")
        self.assertNotIn(other, (None, "chat-7"))
        self.assertEqual(self.session(LONG, "Yes.", "And?"), "chat-7")

    def test_an_edited_last_question_stays_under_its_name(self) -> None:
        self.session(LONG, "Yes.", "And?")
        self.assertEqual(self.session(LONG, "Yes.", "Or?"), "chat-7")

    def test_a_name_of_an_application_stands_for_several_conversations(self) -> None:
        first = self.session("Alps?", shared=True)
        second = self.session("Baltic?", shared=True)
        self.assertNotEqual(first, second)
        self.assertEqual(self.session("Alps?", "High.", "How?", shared=True), first)
        self.assertEqual(self.session("Baltic?", "Flat.", "How?", shared=True), second)

    def test_it_is_remembered_over_a_restart(self) -> None:
        self.session(LONG)
        self.known = self.new()
        self.assertIsNone(self.session("Find a title.", system="You make titles."))
