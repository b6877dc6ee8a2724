"""
What the demo says: three sessions, each a long document and one short question a turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen


@frozen
class Conversation:
    """
    One session's part of the demo.

    :ivar session: its id, sent as ``X-Session-ID``.
    :ivar system: the system prompt with the document: what is read again and again without a cache.
    :ivar questions: one a turn; the last is asked after the restart.
    """

    session: str
    system: str
    questions: tuple[str, ...]

    def messages(self, answers: Sequence[str]) -> list[dict[str, str]]:
        """
        The messages of the turn that follows these answers.
        """
        said = [{"role": "system", "content": self.system}]
        for question, answer in zip(self.questions, answers, strict=False):
            said.append({"role": "user", "content": question})
            said.append({"role": "assistant", "content": answer})
        said.append({"role": "user", "content": self.questions[len(answers)]})
        return said


def _orders() -> Iterator[str]:
    goods = ("brake pads", "a rear light", "two inner tubes", "a saddle", "a chain", "pedals")
    people = ("Marta Lind", "Jonas Berg", "Aisha Rahman", "Tom Okoye", "Ines Duarte")
    ways = ("sent by post", "fetched at the shop", "sent by courier", "waiting for a part")
    for n in range(30):
        yield (
            f"Order {1041 + 3 * n}: {goods[n * 5 % 6]} for {people[n * 3 % 5]}, "
            f"{12 + n * 7 % 60} euros, {ways[n * 7 % 4]} on {1 + n * 11 % 28} May."
        )


def _log() -> Iterator[str]:
    winds = ("south-west", "west", "north-west", "south", "variable")
    skies = ("overcast", "clear", "rain showers", "fog until noon")
    works = ("mended the foresail", "pumped the bilge", "caught two bonito", "wrote letters")
    for n in range(27):
        yield (
            f"Day {n + 1}: wind {winds[n * 3 % 5]} {2 + n * 5 % 6}, {skies[n * 3 % 4]}, "
            f"course {200 + n * 13 % 90}, {60 + n * 17 % 90} miles; the crew {works[n * 5 % 4]}."
        )


def _tariff() -> Iterator[str]:
    places = ("zone_a", "zone_b", "zone_c", "harbour", "airport")
    kinds = ("adult", "child", "student", "senior")
    for n in range(30):
        yield (
            f'rule({101 + n}, place="{places[n * 3 % 5]}", fare="{kinds[n * 7 % 4]}", '
            f"from_hour={n * 5 % 24}, cents={150 + n * 35 % 400})"
        )


def conversations() -> tuple[Conversation, ...]:
    """
    The three sessions: 900 to 1,000 tokens each for SmolLM2, with nothing in common.
    """
    return (
        Conversation(
            "bike-shop",
            "You work in a bicycle shop and answer customers in one short sentence. "
            "These are the orders:\n" + "\n".join(_orders()),
            (
                "What did order 1041 contain?",
                "Who was it for?",
                "How was it sent?",
                "Thank you. What did order 1044 contain?",
            ),
        ),
        Conversation(
            "ship-log",
            "Answer questions about this ship's log in one short sentence.\n" + "\n".join(_log()),
            (
                "How was the weather on day 1?",
                "What did the crew do that day?",
                "How many miles did they make?",
                "And what happened on day 2?",
            ),
        ),
        Conversation(
            "tariff",
            "You explain the fares of a tram company, one short sentence an answer. "
            "The rules, as its program has them:\n" + "\n".join(_tariff()),
            (
                "What does rule 101 say?",
                "Which place is it for?",
                "From which hour is it valid?",
                "What does rule 102 say?",
            ),
        ),
    )
