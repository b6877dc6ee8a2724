"""
The Klein application: a table of routes, and what becomes of a handler that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from klein import Klein
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import ITCPTransport
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.iweb import IRequest
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter

from slotgate.llama.upstream import BadTarget, UpstreamError, UpstreamSilent, check_target
from slotgate.surfaces.generation import PATHS
from slotgate.web.errors import answer_error
from slotgate.web.rejected import Rejected
from slotgate.web.requests import is_looked_at, path_of

_log = Logger()

#: What a handler leaves to be written: nothing more, once it has relayed an answer.
Answer: TypeAlias = bytes | None

#: A handler gets the request and the path as the server will see it.
Handler: TypeAlias = Callable[[IRequest, str], Coroutine[Any, Any, Answer]]


class _Anything(BaseConverter):
    """
    The rest of a path, whatever is in it; ``path`` takes neither a slash at its beginning nor
    nothing at all.
    """

    regex = "(?s:.*)"
    part_isolating = False


def make_app(
    generate: Handler,
    slot_call: Handler,
    session_call: Handler,
    passing: Handler,
    root: Handler,
    translated: Mapping[tuple[str, str], Handler],
    pages: Mapping[str, Handler],
    rejected: Callable[[int], None],
) -> Klein:
    """
    The application.

    :param generate: answers a request that uses a slot.
    :param slot_call: answers a client's own save, restore or erase.
    :param session_call: answers calls of the session API.
    :param passing: answers everything else.
    :param root: answers ``/``.
    :param translated: answers what no server knows, by method and path.
    :param pages: answers what is below ``/slotgate``, by path; each looks at the method itself.
    :param rejected: is told of each request that was not taken, with the status of the answer;
        not of those for pages.
    """
    answered = partial(_answering, rejected)
    app = Klein()
    # the server takes paths as they are, so no redirect may tidy them up
    app.url_map.merge_slashes = False
    for path in PATHS:
        app.route(path, endpoint=path, methods=["POST"])(answered(generate, path))
    app.url_map.converters["anything"] = _Anything
    # whatever comes after the slash: the server takes /slots/0/ and /slots/0abc for slot 0 too
    slots = "/slots/<anything:slot>"
    app.route(slots, endpoint="slot call", methods=["POST"])(answered(slot_call))
    own = answered(session_call, relayed=False)
    app.route("/api/sessions", endpoint="sessions")(own)
    app.route("/api/sessions/<anything:rest>", endpoint="session call")(own)
    for (method, path), handler in translated.items():
        served = answered(handler, relayed=False)
        app.route(path, endpoint=f"{method} {path}", methods=[method])(served)
    for path, handler in pages.items():
        app.route(path, endpoint=f"page {path}")(answered(handler, relayed=False))
    app.route("/slotgate/<anything:rest>", endpoint="no page")(answered(_no_page, relayed=False))
    app.route("/", endpoint="root page", methods=["GET", "HEAD"])(answered(root))
    app.route("/", endpoint="root")(answered(passing))
    app.route("/<path:rest>", endpoint="passing")(answered(passing))
    app.handle_errors(HTTPException)(_no_route)
    return app


def _answering(
    rejected: Callable[[int], None], handler: Handler, path: str = "", *, relayed: bool = True
) -> Callable[..., Coroutine[Any, Any, Answer]]:
    """
    Turn what a handler raises into an answer, or into a cut connection where it is too late.

    Klein would end a stream cleanly after an error, and the client would take it for complete.

    :param rejected: is told of each request that was not taken, but for pages.
    :param path: what the route stands for, where it is one path.
    :param relayed: whether a server gets to see the path.
    """

    async def answer(request: IRequest, **_: object) -> Answer:
        try:
            if relayed:
                check_target(request.uri)
            return await handler(request, path or path_of(request))
        except CancelledError:
            # the client has gone; Klein suppresses exactly this
            raise
        except Rejected as error:
            if not is_looked_at(path_of(request)):
                rejected(error.status)
            return answer_error(request, error.status, error.message, error.headers)
        except BadTarget as error:
            return answer_error(request, 400, str(error))
        except UpstreamError as error:
            status = 504 if isinstance(error, UpstreamSilent) else 502
            # the path and never the query or a header: those can hold keys
            told = path_of(request)
            _log.warn("{path}: {status}: {error}", path=told, status=status, error=error)
            return answer_error(request, status, str(error))
        except Exception:
            _log.failure("{path}: a fault of slotgate", path=path_of(request))
            if cast(Request, request).startedWriting:
                cast(ITCPTransport, cast(Request, request).transport).abortConnection()
                return None
            return answer_error(request, 500, "slotgate failed; its log says how")

    return answer


async def _no_page(request: IRequest, path: str) -> bytes:
    raise Rejected(404, f"no such page: {path}")


def _no_route(request: IRequest, failure: Failure) -> bytes:
    status = cast(HTTPException, failure.value).code or 500
    return answer_error(request, status, f"not a path of this gateway: {path_of(request)}")
