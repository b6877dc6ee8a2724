"""
The index: a record per snapshot. A snapshot exists once its record is committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from attrs import astuple, fields, frozen

from slotgate.conversations import Conversation
from slotgate.sessions import Session, SessionKey
from slotgate.snapshots.database import Transactions
from slotgate.snapshots.records import Left, SeenFolder, Snapshot, Use

_COLUMNS = ", ".join(attribute.name for attribute in fields(Snapshot))
_MARKS = ", ".join("?" for _ in fields(Snapshot))


@frozen
class Index:
    """
    The records. Each method is one transaction.

    Invariant: at most one record per session; its file was whole when the record was committed.
    """

    _database: Transactions

    async def find(self, key: SessionKey) -> Snapshot | None:
        """The snapshot of a session."""
        found = await self._select(
            "WHERE client = ? AND route = ? AND session = ?", *_identity(key)
        )
        return found[0] if found else None

    async def all(self) -> list[Snapshot]:
        """Every snapshot, the one used longest ago first."""
        return await self._select("ORDER BY used")

    async def _select(self, clauses: str, *values: object) -> list[Snapshot]:
        def select(cursor: sqlite3.Cursor) -> list[Snapshot]:
            rows = cursor.execute(
                f"SELECT {_COLUMNS} FROM snapshots {clauses}",  # noqa: S608 - no value in it
                values,
            )
            return [Snapshot(*row) for row in rows.fetchall()]

        return await self._database.runInteraction(select)

    async def of_route(self, server: str, route: str) -> list[Snapshot]:
        """The snapshots of a route, the one used longest ago first."""
        return await self._select("WHERE server = ? AND route = ? ORDER BY used", server, route)

    async def of(self, keys: Collection[SessionKey]) -> list[Snapshot]:
        """The snapshots of these sessions, as far as they have one."""
        if not keys:
            return []
        among, values = _among(keys)
        return await self._select(f"WHERE {among}", *values)

    async def page(
        self,
        client: str | None,
        offset: int,
        limit: int,
        without: Collection[SessionKey] = (),
    ) -> list[Snapshot]:
        """
        Some of the snapshots, the one used last first.

        :param client: whose, empty where clients have no keys; ``None``: everybody's.
        :param without: sessions that are left out.
        """
        among, values = _among(without)
        whose, owner = ("", ()) if client is None else ("client = ? AND ", (client,))
        return await self._select(
            f"WHERE {whose}NOT {among} ORDER BY used DESC LIMIT ? OFFSET ?",
            *owner,
            *values,
            limit,
            offset,
        )

    async def named(self, client: str | None, session: str) -> list[Snapshot]:
        """
        The snapshots of a session id, on whatever route.

        :param client: whose, empty where clients have no keys; ``None``: everybody's.
        """
        if client is None:
            return await self._select("WHERE session = ?", session)
        return await self._select("WHERE client = ? AND session = ?", client, session)

    async def count(self, client: str | None) -> tuple[int, int]:
        """
        How many snapshots there are, and how many bytes they take.

        :param client: whose, empty where clients have no keys; ``None``: everybody's.
        """

        def count(cursor: sqlite3.Cursor) -> tuple[int, int]:
            totals = "SELECT count(*), coalesce(sum(size), 0) FROM snapshots"
            if client is None:
                rows = cursor.execute(totals)
            else:
                rows = cursor.execute(f"{totals} WHERE client = ?", (client,))
            files, size = rows.fetchone()
            return files, size

        return await self._database.runInteraction(count)

    async def uses(self) -> list[Use]:
        """What each route of each server takes of the disk."""

        def read(cursor: sqlite3.Cursor) -> list[Use]:
            rows = cursor.execute(
                "SELECT server, route, count(*), coalesce(sum(size), 0) FROM snapshots"
                " GROUP BY server, route ORDER BY server, route"
            ).fetchall()
            return [Use(*row) for row in rows]

        return await self._database.runInteraction(read)

    async def seen(self, folder: str) -> SeenFolder | None:
        """What a folder was when it was seen last; ``None`` for one that never was."""

        def read(cursor: sqlite3.Cursor) -> SeenFolder | None:
            row = cursor.execute(
                "SELECT identity, shared FROM folders WHERE path = ?", (folder,)
            ).fetchone()
            return None if row is None else SeenFolder(str(row[0]), bool(row[1]))

        return await self._database.runInteraction(read)

    async def saw(self, folder: str, seen: SeenFolder) -> None:
        """Remember what a folder is."""

        def write(cursor: sqlite3.Cursor) -> None:
            values = (folder, seen.identity, seen.shared)
            cursor.execute("INSERT OR REPLACE INTO folders VALUES (?, ?, ?)", values)

        await self._database.runInteraction(write)

    async def left_of(self, server: str) -> list[tuple[str, int]]:
        """The slots of a server that hold something, by model and number."""

        def read(cursor: sqlite3.Cursor) -> list[tuple[str, int]]:
            rows = cursor.execute(
                "SELECT model, slot FROM left_in_slots WHERE server = ?", (server,)
            )
            return [(str(model), int(slot)) for model, slot in rows.fetchall()]

        return await self._database.runInteraction(read)

    async def left_in(self, server: str, model: str, slot: int) -> Left | None:
        """
        What a slot held when its last lease ended.

        :param model: empty where the server has one model.
        """

        def read(cursor: sqlite3.Cursor) -> Left | None:
            row = cursor.execute(
                "SELECT client, route, session, source, beginning, saved, task, tokens"
                " FROM left_in_slots"
                " WHERE server = ? AND model = ? AND slot = ?",
                (server, model, slot),
            ).fetchone()
            if row is None:
                return None
            client, route, session, source, beginning, saved, task, tokens = row
            key = SessionKey(client or None, route, session)
            found = Session(key, source, beginning=beginning)
            return Left(found, bool(saved), task, tokens)

        return await self._database.runInteraction(read)

    async def leave(self, server: str, model: str, slot: int, left: Left | None) -> None:
        """Remember what a slot holds; ``None``: nothing that is known."""

        def write(cursor: sqlite3.Cursor) -> None:
            if left is None:
                cursor.execute(
                    "DELETE FROM left_in_slots WHERE server = ? AND model = ? AND slot = ?",
                    (server, model, slot),
                )
                return
            session = left.session
            values = (
                server,
                model,
                slot,
                *_identity(session.key),
                session.source,
                session.beginning,
                left.saved,
                left.task,
                left.tokens,
            )
            marks = ", ".join("?" for _ in values)
            cursor.execute(
                f"INSERT OR REPLACE INTO left_in_slots VALUES ({marks})",  # noqa: S608
                values,
            )

        await self._database.runInteraction(write)

    async def remember(self, conversation: Conversation) -> None:
        """Remember a conversation as it is now."""

        def write(cursor: sqlite3.Cursor) -> None:
            cursor.execute(
                "INSERT OR REPLACE INTO conversations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*_identity(conversation.key), *astuple(conversation, recurse=False)[1:]),
            )

        await self._database.runInteraction(write)

    async def forget_conversations(self, keys: Iterable[SessionKey]) -> None:
        """Remember these conversations no longer."""

        def forget(cursor: sqlite3.Cursor) -> None:
            cursor.executemany(
                "DELETE FROM conversations WHERE client = ? AND route = ? AND session = ?",
                [_identity(key) for key in keys],
            )

        await self._database.runInteraction(forget)

    async def conversations(self) -> list[Conversation]:
        """The conversations that are remembered, the one used longest ago first."""

        def read(cursor: sqlite3.Cursor) -> list[Conversation]:
            rows = cursor.execute("SELECT * FROM conversations ORDER BY used").fetchall()
            return [
                Conversation(SessionKey(client or None, route, session), *rest)
                for client, route, session, *rest in rows
            ]

        return await self._database.runInteraction(read)

    async def commit(self, snapshot: Snapshot) -> None:
        """From now on this is the session's snapshot, and no other one is."""

        def commit(cursor: sqlite3.Cursor) -> None:
            cursor.execute(
                f"INSERT OR REPLACE INTO snapshots ({_COLUMNS}) VALUES ({_MARKS})",  # noqa: S608
                astuple(snapshot),
            )

        await self._database.runInteraction(commit)

    async def touch(self, snapshot: Snapshot, now: float) -> None:
        """The snapshot was used at ``now`` (seconds since the epoch)."""

        def touch(cursor: sqlite3.Cursor) -> None:
            cursor.execute(
                "UPDATE snapshots SET used = ? WHERE server = ? AND file = ?",
                (now, snapshot.server, snapshot.file),
            )

        await self._database.runInteraction(touch)

    async def forget(self, snapshot: Snapshot) -> bool:
        """
        Remove the record of this very file; a newer one of the session stays.

        :returns: whether there was one.
        """

        def forget(cursor: sqlite3.Cursor) -> bool:
            cursor.execute(
                "DELETE FROM snapshots WHERE server = ? AND file = ?",
                (snapshot.server, snapshot.file),
            )
            return cursor.rowcount > 0

        return await self._database.runInteraction(forget)


def _among(keys: Collection[SessionKey]) -> tuple[str, list[str]]:
    """SQL for "is one of these sessions", and its values."""
    if not keys:
        return "0", []
    marks = ", ".join("(?, ?, ?)" for _ in keys)
    values = [value for key in keys for value in _identity(key)]
    return f"(client, route, session) IN (VALUES {marks})", values


def _identity(key: SessionKey) -> tuple[str, str, str]:
    return key.client or "", key.route, key.id
