"""The HTTP server of `gp-mapping view`: standard library only, read-only, bounded."""

from __future__ import annotations

import errno
import gzip
import json
import socket
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from gp_mapping.commands.view.map_image import encode_map
from gp_mapping.errors import one_line

__all__ = ["HEADER", "LOOPBACK", "TOTAL", "ViewServer"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PAGE = {
    "/": ("index.html", "text/html"),
    "/view.js": ("view.js", "text/javascript"),
    "/draw.js": ("draw.js", "text/javascript"),
    "/view.css": ("view.css", "text/css"),
}
_FARTHEST = 1e7  # m, of a corner from the origin
_AT_ONCE = 16  # requests at a time
HEADER, TOTAL = 3.0, 60.0  # s for sending a request, and for all of it
GRACE = 1.0  # s in which an answer may be taken before it gives way to another request
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
}


class ViewServer(ThreadingHTTPServer):
    """Serve the page and the data of a feed.

    What is served:

    - GET / and its files: the page.
    - /api/status, /api/overlay: JSON.
    - /api/map: what map_image.encode_map writes; 204 before the first map.
    - /api/window?low=X,Y&high=X,Y: the same for what is known between two corners (m); 204 while
      the mapper has not answered.

    A request has HEADER s to be sent and TOTAL s in all, however busily it trickles. At most
    _AT_ONCE are open; a further one replaces the request that has been sent for longest, or else
    the answer that has been taken for longest, and for GRACE s at least; else it is refused.

    Args:
        host: address to listen on; on a loopback address only requests for this machine are served.
        port: 0 for any free one.
        feed: object with touch(), status(), overlay(), map() and window(), such as
            ros.clients.view_feed.LiveFeed.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, host: str, port: int, feed):
        self.feed = feed
        self.only_here = host in LOOPBACK
        # of each open request: when it came (monotonic s), and whether it is being answered
        self._open: dict[socket.socket, tuple[float, bool]] = {}
        self._lock = threading.Lock()
        self._encoded: tuple[int, bytes] | None = None
        self._encoding = threading.Lock()
        self._reported: set[str] = set()  # faults of answers
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def process_request(self, request, client_address) -> None:
        """Answer a request in its own thread; where all places are taken, free one or refuse.

        Args:
            request: socket of the reader.
            client_address: its host and port.
        """
        with self._lock:
            if len(self._open) >= _AT_ONCE:
                before = time.monotonic() - GRACE
                # requests that are still being sent, or else old ones that are being answered
                late = [sock for sock, (_, answered) in self._open.items() if not answered] or [
                    sock for sock, (came, _) in self._open.items() if came < before
                ]
                if not late:
                    self.shutdown_request(request)
                    return
                self._cut(min(late, key=lambda sock: self._open[sock][0]))
            self._open[request] = (time.monotonic(), False)

        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:
        """Answer a request, and free its place, whatever happens.

        Args:
            request: socket of the reader.
            client_address: its host and port.
        """
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def answering(self, request) -> None:
        """Note that a request has been read and is being answered: from now on TOTAL counts."""
        with self._lock:
            if request in self._open:
                self._open[request] = (self._open[request][0], True)

    def service_actions(self) -> None:
        """Cut off requests that take too long; serve_forever calls it twice a second."""
        super().service_actions()

        now = time.monotonic()
        with self._lock:
            late = [
                sock
                for sock, (came, answered) in self._open.items()
                if now - came > (TOTAL if answered else HEADER)
            ]
            for request in late:
                self._cut(request)

    def _cut(self, request) -> None:
        """End a connection and free its place at once; its thread wakes with an error and ends."""
        self._open.pop(request, None)
        with suppress(OSError):  # gone already
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address) -> None:
        """Report what ended a request; a reader that goes away in the middle is no fault.

        Args:
            request: socket of the reader.
            client_address: its host and port.
        """
        error = sys.exc_info()[1]
        if not _reader_left(error):
            self.report_fault("a request", error)

    def report_fault(self, what: str, error: BaseException | None) -> None:
        """Print a fault of an answer on stderr, each once: the page asks several times a second.

        Args:
            what: the request, in words.
            error: that ended it; None where it is not known.
        """
        text = f"gp-mapping view: {what} failed, {type(error).__name__}: {one_line(error)}"
        with self._lock:
            known, self._reported = text in self._reported, {*self._reported, text}
        if not known:
            print(f"{text}; please report it", file=sys.stderr, flush=True)

    def encoded_map(self) -> bytes | None:
        """Return the newest map, encoded and compressed once for all readers; None before it."""
        with self._encoding:
            live_map = self.feed.map()
            if live_map is None:
                return None
            if self._encoded is None or self._encoded[0] != live_map.number:
                data = encode_map(
                    live_map.number, live_map.columns, live_map.limits, live_map.frame
                )
                self._encoded = (live_map.number, gzip.compress(data, 1))
            return self._encoded[1]


def _reader_left(error: BaseException | None) -> bool:
    """Return whether a connection has ended, by its reader or cut off here."""
    return isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(error, OSError) and error.errno in (errno.ENOTCONN, errno.EBADF)
    )


def _corners(query: str) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Parse low=X,Y&high=X,Y as lower and upper corner, m; None where the query is malformed."""
    parameters = parse_qs(query)
    try:
        low, high = (tuple(map(float, parameters[name][0].split(","))) for name in ("low", "high"))
    except (KeyError, ValueError):
        return None

    # abs(v) <= … is False for NaN, too
    valid = len(low) == len(high) == 2 and all(abs(v) <= _FARTHEST for v in (*low, *high))
    return (low, high) if valid and all(a < b for a, b in zip(low, high)) else None


class _Handler(BaseHTTPRequestHandler):
    """Answer one request: GET or HEAD."""

    server: ViewServer
    timeout = 10.0
    server_version, sys_version = "gp-mapping", ""

    def do_GET(self) -> None:
        """Answer with the page, the data of the feed, or an error."""
        try:
            self._answer()
        except Exception as error:
            if _reader_left(error):
                raise
            # what fails does so before its first byte is sent: the page is told, and asks again
            self.server.report_fault(self.path.partition("?")[0], error)
            text = b"the answer failed; the terminal of gp-mapping view says why\n"
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, text, "text/plain; charset=utf-8")

    def _answer(self) -> None:
        """Answer what is asked for."""
        self.server.answering(self.request)
        if not self._is_host_allowed():
            self._send(
                HTTPStatus.FORBIDDEN,
                b"this page is for the machine it runs on\n",
                "text/plain; charset=utf-8",
            )
            return

        path, feed = self.path.partition("?")[0], self.server.feed
        if path in _PAGE:
            name, kind = _PAGE[path]
            self._send(
                HTTPStatus.OK,
                (Path(__file__).parent / "page" / name).read_bytes(),
                f"{kind}; charset=utf-8",
            )
            return

        feed.touch()  # the mapper draws for the page only while the page is open
        if path == "/api/status":
            self._json(feed.status())
        elif path == "/api/overlay":
            self._json(feed.overlay())
        elif path == "/api/map":
            self._map(self.server.encoded_map())
        elif path == "/api/window":
            corners = _corners(self.path.partition("?")[2])
            if corners is None:
                text = b"expected low=X,Y&high=X,Y in metres\n"
                self._send(HTTPStatus.BAD_REQUEST, text, "text/plain; charset=utf-8")
                return

            live_map = feed.window(*corners)
            self._map(
                None
                if live_map is None
                else gzip.compress(
                    encode_map(live_map.number, live_map.columns, live_map.limits, live_map.frame),
                    1,
                )
            )
        else:
            self._send(HTTPStatus.NOT_FOUND, b"no such page\n", "text/plain; charset=utf-8")

    do_HEAD = do_GET

    def _map(self, data: bytes | None) -> None:
        """Send a compressed map, or 204 where there is none."""
        if data is None:
            self._send(HTTPStatus.NO_CONTENT, b"", "application/octet-stream")
        else:
            self._send(HTTPStatus.OK, data, "application/octet-stream", "gzip")

    def _is_host_allowed(self) -> bool:
        """Return whether the Host of a request is this machine, where only it may read the map.

        Else a page elsewhere whose name is made to point here (DNS rebinding) could read it.
        """
        name = self.headers.get("Host", "").lower()
        # without the port; an IPv6 address such as [::1] ends in a bracket where it has none
        name = (
            name.rpartition(":")[0]
            if name.rpartition(":")[2].isdigit() and not name.endswith("]")
            else name
        )
        return not self.server.only_here or name.strip("[]") in LOOPBACK

    def _json(self, value: dict) -> None:
        """Send JSON, compressed where it is long."""
        text = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        packed = len(text) > 2000
        self._send(
            HTTPStatus.OK,
            gzip.compress(text, 1) if packed else text,
            "application/json",
            "gzip" if packed else "",
        )

    def _send(self, code: HTTPStatus, body: bytes, kind: str, encoding: str = "") -> None:
        """Send a whole answer; of HEAD the headers alone."""
        self.send_response(code)
        headers = _HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in (headers | ({"Content-Encoding": encoding} if encoding else {})).items():
            self.send_header(name, value)
        self.end_headers()

        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_) -> None:
        """Log nothing: a line for each poll would bury what matters."""
