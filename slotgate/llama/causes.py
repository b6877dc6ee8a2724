"""
Why a connection to a server failed, in words.
"""

from __future__ import annotations

from OpenSSL.SSL import Error as TLSError
from service_identity.exceptions import VerificationError
from twisted.internet.defer import CancelledError
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    DNSLookupError,
)
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.web.client import (
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)

#: What a request through an agent fails with when the server or the way to it is at fault, or the
#: request was cancelled.
REQUEST_FAILURES = (
    CancelledError,
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    OSError,
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
    TLSError,
    VerificationError,
)


def reasons(error: BaseException) -> list[BaseException]:
    """
    The errors that an error of :mod:`twisted.web.client` was made of, innermost ones only.
    """
    inner = getattr(error, "reasons", None)
    if not inner:
        return [error]
    return [reason for failure in inner for reason in reasons(failure.value)]


def was_cancelled(error: BaseException) -> bool:
    """
    True for a request that was cancelled, however Twisted has wrapped it (before the headers it
    is a :class:`ResponseNeverReceived`, while connecting a :class:`ConnectingCancelledError`).
    """
    return any(isinstance(one, CancelledError | ConnectingCancelledError) for one in reasons(error))


def cause(error: BaseException) -> str:
    """
    A few words for a message to a person: why there was no answer, or only the beginning of one.
    """
    inner = reasons(error)
    for one in inner:
        match one:
            case Refused():
                return "connection refused"
            case ConnectTimeout():
                return "it does not take the connection"
            case DNSLookupError():
                return "unknown host name"
            case VerificationError():
                return "its certificate is for another name"
            case TLSError():
                return f"TLS failed, {_tls_reason(one)}"
            case ConnectError():
                return f"cannot connect, {one.args[0] if one.args else one}"
    if isinstance(error, ResponseNeverReceived | RequestTransmissionFailed):
        return "it closed the connection without an answer"
    if all(isinstance(one, ConnectionClosed) for one in inner):
        return "it closed the connection before the end of its answer"
    if isinstance(error, ResponseFailed):
        return "no answer that is HTTP"
    return f"{type(error).__name__}: {error}"


def _tls_reason(error: TLSError) -> str:
    try:
        return str(error.args[0][-1][-1])
    except (IndexError, TypeError):
        return "the connection ended"
