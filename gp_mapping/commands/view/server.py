"""The page of `gp-mapping view` over HTTP: standard library, read-only, bounded."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gp_mapping.commands.view.map_image import encode_map

__all__ = ["LOOPBACK", "ViewServer"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PAGE = {"/": ("index.html", "text/html"), "/view.js": ("view.js", "text/javascript"),
         "/draw.js": ("draw.js", "text/javascript"), "/view.css": ("view.css", "text/css")}
_AT_ONCE = 16  # requests; what comes beyond is turned away
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
            "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                                       "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
                                       "form-action 'none'"}


class ViewServer(ThreadingHTTPServer):
    """Serves a feed: an object with touch(), status(), overlay() and map(), as ros.view_feed.LiveFeed.

    GET / is the page; /api/status and /api/overlay are JSON; /api/map is what view_map.encode_map writes, 204 before
    the first map. A reader that sends or takes nothing for 10 s is cut off.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, host: str, port: int, feed):
        self.feed = feed
        self.only_here = host in LOOPBACK
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._encoded: tuple[int, bytes] | None = None
        self._encoding = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def process_request(self, request, client_address) -> None:
        """Each in a thread, and no more than so many at a time."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:
        """Frees its place, whatever happens."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request, client_address) -> None:
        """A reader that went away in the middle is nothing to report."""

    def encoded_map(self) -> bytes | None:
        """The newest map in its wire form; made once for all readers."""
        with self._encoding:
            made = self.feed.map()
            if made is None:
                return None
            if self._encoded is None or self._encoded[0] != made.number:
                data = encode_map(made.number, made.columns, made.limits, made.frame)
                self._encoded = (made.number, gzip.compress(data, 1))
            return self._encoded[1]


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    timeout = 10.0
    server_version, sys_version = "gp-mapping", ""

    def do_GET(self) -> None:
        if not self._meant_for_us():
            self._send(HTTPStatus.FORBIDDEN, b"this page is for the machine it runs on\n", "text/plain; charset=utf-8")
            return
        path, feed = self.path.partition("?")[0], self.server.feed
        if path in _PAGE:
            name, kind = _PAGE[path]
            self._send(HTTPStatus.OK, (Path(__file__).parent / "page" / name).read_bytes(),
                       f"{kind}; charset=utf-8")
            return
        feed.touch()
        if path == "/api/status":
            self._json(feed.status())
        elif path == "/api/overlay":
            self._json(feed.overlay())
        elif path == "/api/map":
            data = self.server.encoded_map()
            if data is None:
                self._send(HTTPStatus.NO_CONTENT, b"", "application/octet-stream")
            else:
                self._send(HTTPStatus.OK, data, "application/octet-stream", "gzip")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"no such page\n", "text/plain; charset=utf-8")

    do_HEAD = do_GET

    def _meant_for_us(self) -> bool:
        """A page elsewhere whose name is made to point here (DNS rebinding) must not read a local map."""
        name = self.headers.get("Host", "").lower()
        name = name.rpartition(":")[0] if name.rpartition(":")[2].isdigit() and not name.endswith("]") else name
        return not self.server.only_here or name.strip("[]") in LOOPBACK

    def _json(self, value: dict) -> None:
        text = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        packed = len(text) > 2000
        self._send(HTTPStatus.OK, gzip.compress(text, 1) if packed else text, "application/json",
                   "gzip" if packed else "")

    def _send(self, code: HTTPStatus, body: bytes, kind: str, encoding: str = "") -> None:
        self.send_response(code)
        headers = _HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in (headers | ({"Content-Encoding": encoding} if encoding else {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_) -> None:
        """A line for each poll would bury what matters."""
