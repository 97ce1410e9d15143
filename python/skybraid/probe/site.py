"""Pages that `probe serve` offers over HTTP/1.1 and HTTP/3, and the search for a page's objects."""

from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import parse_qs, urljoin, urlsplit

from skybraid.probe.measure import ProbeError, size_bytes

MAX_BYTES = 10**10
"""Maximum size of a response in bytes."""

MAX_OBJECTS = 1000

REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 413: "Content Too Large"}


@dataclass(frozen=True, slots=True)
class Resource:
    """Response: text, or a number of filler bytes."""

    status: int
    kind: str
    text: bytes
    filling: int = 0

    @property
    def size(self) -> int:
        """Length of the body in bytes."""
        return len(self.text) + self.filling


@dataclass(frozen=True, slots=True)
class Site:
    """Site with a page at `/` with `objects` of `size` bytes each; `/page?objects=10&bytes=50kB` overrides both."""

    objects: int = 10
    size: int = 50_000

    def look(self, method: str, target: str) -> Resource:
        """Returns the response to a request."""
        if method != "GET":
            return _plain(405, f"found {method}, expected GET")
        url = urlsplit(target)
        try:
            if url.path == "/":
                return _page(self.objects, self.size)
            if url.path == "/page":
                asked = parse_qs(url.query)
                count = asked.get("objects", [str(self.objects)])[0]
                if not count.isdecimal() or int(count) > MAX_OBJECTS:
                    return _plain(400, f"objects: found {count}, expected a whole number up to {MAX_OBJECTS}")
                return _page(int(count), size_bytes(asked.get("bytes", [str(self.size)])[0], "bytes"))
            if url.path.startswith("/bytes/"):
                size = size_bytes(url.path.removeprefix("/bytes/"), "bytes")
                if size > MAX_BYTES:
                    return _plain(413, f"found {size} bytes, expected at most {MAX_BYTES}")
                return Resource(200, "application/octet-stream", b"", size)
        except ProbeError as error:
            return _plain(400, str(error))
        return _plain(404, "expected /, /page?objects=10&bytes=50kB or /bytes/1MB")


def _plain(status: int, words: str) -> Resource:
    return Resource(status, "text/plain; charset=utf-8", f"{words}\n".encode())


def _page(objects: int, size: int) -> Resource:
    images = "".join(f'<img src="/bytes/{size}?object={number}" alt="">\n' for number in range(1, objects + 1))
    text = f"<!doctype html>\n<title>{objects} objects</title>\n{images}"
    return Resource(200, "text/html; charset=utf-8", text.encode())


class _Objects(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        link = named.get("href") if tag == "link" and "stylesheet" in (named.get("rel") or "") else None
        source = named.get("src") if tag in ("img", "script", "iframe", "audio", "video", "source", "embed") else link
        if source:
            self.found.append(source)


def objects_of(page: str, url: str) -> list[str]:
    """Returns the targets (path and query) of the objects that a browser would load with a page, in order.

    Objects of other servers are left out: a probe measures the path to one server.
    """
    parser = _Objects()
    parser.feed(page)
    own = urlsplit(url)
    found = [urlsplit(urljoin(url, source)) for source in parser.found]
    return [
        target_of(part.path, part.query) for part in found if (part.scheme, part.netloc) == (own.scheme, own.netloc)
    ]


def target_of(path: str, query: str) -> str:
    """Returns the target of a request line."""
    return (path or "/") + (f"?{query}" if query else "")


@dataclass(frozen=True, slots=True)
class Place:
    """Parts of a URL."""

    url: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """Host and port for the request's authority."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def place(url: str, scheme: str, port: int) -> Place:
    """Parses a URL with the given scheme and default port.

    Raises:
        ProbeError: the scheme differs, or the host or a valid port is missing.
    """
    expected = f"expected {scheme}://HOST:PORT/…"
    try:
        parts = urlsplit(url)
        number = parts.port
    except ValueError as error:
        raise ProbeError(f"{url}: {error}, {expected}") from error
    if parts.scheme != scheme or not parts.hostname:
        raise ProbeError(f"{url}: found no {scheme} URL, {expected}")
    return Place(url, parts.hostname, number or port, target_of(parts.path, parts.query))
