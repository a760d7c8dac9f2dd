"""An API and a site of five hosts on loopback, in which each response takes a while.

usage: server.py PORT [--latency-ms 100]

A page has up to 100 records; record i of an endpoint has the id i, counted on over its sources, streams and values:
    GET /numbered?page=1&per_page=100   200 pages; /numbered-total names the number of records as `total`
    GET /offset?offset=0&limit=100      the same; /offset-total
    GET /short/I?page=1&per_page=100    8 sources of 25 pages, with `total`
    GET /cursor/I?cursor=TOKEN          5 streams of 100 pages, `next` is a token that only the page before names
    GET /value/V                        200 values of a page
    GET /value-pages/V?page=1           50 values of 4 pages, with `total`
    GET /nothing                        no record, at once
The site is on the five ports behind PORT: 300 pages /page/N, each on one host and linked over all, and robots.txt.

    GET /stats    requests, most in flight at a time, connections that sent one, pages served more than once
    POST /reset   the same, and counts from 0 again
"""
import argparse
import asyncio
import hashlib
import json
from urllib.parse import parse_qsl

from cases import LINKS, PER_PAGE, SITE_PAGES, SITES

LANDS = ["NL", "PL", "IN", "KE", "CL"]
NUMBERED, SHORT, CURSOR, VALUE, VALUE_PAGES = 20_000, 2_500, 10_000, 100, 400
SOURCES = {"short": 8, "cursor": 5, "value": 200, "value-pages": 50, "page": SITE_PAGES}
HEAD = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"


def record(number):
    lot = int.from_bytes(hashlib.sha256(str(number).encode()).digest()[:8], "big")
    return {
        "id": number,
        "code": f"C{lot % 10**7:07}",
        "title": f"Thing {lot % 99_991} from shelf {lot % 887}",
        "amount": lot % 40_009 / 100,
        "stock": lot % 997,
        "listed": lot % 5 > 0,
        "changed": f"2025-{lot % 12 + 1:02}-{lot % 28 + 1:02}T{lot % 24:02}:30:00Z",
        "owner": lot % 9_001,
        "land": LANDS[lot % 7 % 5],
        "score": [None, 3.5, 4.25, 4.75][lot % 11 % 4],
    }


RECORDS = [json.dumps(record(number)).encode() for number in range(5 * CURSOR)]


def token(stream, first):
    return hashlib.sha256(f"{stream} {first}".encode()).hexdigest()[:20]


TOKENS = {token(s, first): first for s in range(5) for first in range(0, CURSOR, PER_PAGE)}


def page(source, count, first, most, more=b""):
    """Records `first` and following of a source of `count` records; one source behind the other."""
    begin, end = (source * count + min(max(at, 0), count) for at in (first, first + most))
    return b'{"items":[' + b",".join(RECORDS[begin:end]) + b"]" + more + b"}"


def numbered(source, count, query, is_total=True):
    most = int(query.get("per_page", PER_PAGE))
    return page(source, count, (int(query.get("page", 1)) - 1) * most, most, b',"total":%d' % count * is_total)


def offset(query, is_total):
    most = int(query.get("limit", PER_PAGE))
    return page(0, NUMBERED, int(query.get("offset", 0)), most, b',"total":%d' % NUMBERED * is_total)


def cursor(stream, query):
    first = TOKENS[query["cursor"]] if "cursor" in query else 0
    following = token(stream, first + PER_PAGE) if first + PER_PAGE < CURSOR else None
    return page(stream, CURSOR, first, PER_PAGE, b',"next":' + json.dumps(following).encode())


def html(number, port):
    """Page `number` of the site: links make a tree of two levels, and a ring."""
    linked = [*range(number * LINKS + 1, number * LINKS + LINKS + 1), (number + 1) % SITE_PAGES]
    hosts = (f"http://127.0.0.1:{port + 1 + n % SITES}/page/{n}" for n in linked if n < SITE_PAGES)
    links = "".join(f'<li><a href="{at}">{at}</a></li>' for at in hosts)
    text = f"Page {number} says little that its neighbours do not say as well. " * 20
    article = f'<article id="{number}"><h1>Page {number}</h1><p>{text}</p></article>'
    head = f'<!DOCTYPE html><html lang="en"><head><title>Page {number}</title></head>'
    return f"{head}<body>{article}<ul>{links}</ul></body></html>".encode()


def found(path, query, port):
    """The body at a path and its type. A KeyError, ValueError or IndexError is a page that does not exist."""
    name, number = path[1], int(path[2]) if len(path) > 2 else 0
    if not 0 <= number < SOURCES.get(name, 1):
        raise IndexError
    if name == "robots.txt":
        return b"User-agent: *\nAllow: /\n", b"text/plain"
    if name == "page":
        return html(number, port), b"text/html; charset=utf-8"
    body = {
        "numbered": lambda: numbered(0, NUMBERED, query, False),
        "numbered-total": lambda: numbered(0, NUMBERED, query),
        "offset": lambda: offset(query, False),
        "offset-total": lambda: offset(query, True),
        "short": lambda: numbered(number, SHORT, query),
        "cursor": lambda: cursor(number, query),
        "value": lambda: page(number, VALUE, 0, PER_PAGE),
        "value-pages": lambda: numbered(number, VALUE_PAGES, query),
        "nothing": lambda: page(0, 0, 0, 0),
    }[name]()
    return body, b"application/json"


class Counts:
    def __init__(self):
        self.requests = self.in_flight = self.most_in_flight = self.accepted = 0
        self.served = {}

    def stats(self):
        twice = sum(n > 1 for n in self.served.values())
        most, accepted = self.most_in_flight, self.accepted
        return {"requests": self.requests, "most_in_flight": most, "accepted": accepted, "twice": twice}


class Api(asyncio.Protocol):
    counts, latency_s, port = Counts(), 0.1, 0

    def connection_made(self, transport):
        self.transport, self.rest, self.counted = transport, b"", None

    def data_received(self, data):
        *requests, self.rest = (self.rest + data).split(b"\r\n\r\n")
        for request in requests:
            self.asked(*request.split(b" ", 2)[:2], b"connection: close" in request.lower())

    def asked(self, method, target, is_last):
        counts = Api.counts
        if target in (b"/stats", b"/reset"):
            stats = json.dumps(counts.stats()).encode()
            if method == b"POST":
                Api.counts = Counts()
            return self.put(HEAD % (b"200 OK", b"application/json", len(stats)) + stats, is_last)
        if self.counted is not counts:
            self.counted = counts
            counts.accepted += 1
        counts.requests += 1
        counts.in_flight += 1
        counts.most_in_flight = max(counts.most_in_flight, counts.in_flight)
        page = self.transport.get_extra_info("sockname")[1], target
        counts.served[page] = counts.served.get(page, 0) + 1
        wait = 0 if target == b"/nothing" else Api.latency_s
        asyncio.get_running_loop().call_later(wait, self.respond, target.decode(), counts, is_last)

    def respond(self, target, counts, is_last):
        counts.in_flight -= 1
        path, _, query = target.partition("?")
        try:
            body, kind = found(path.split("/"), dict(parse_qsl(query)), Api.port)
            self.put(HEAD % (b"200 OK", kind, len(body)) + body, is_last)
        except (KeyError, ValueError, IndexError):
            self.put(HEAD % (b"404 Not Found", b"text/plain", 0), is_last)

    def put(self, response, is_last):
        if not self.transport.is_closing():
            self.transport.write(response)
            if is_last:
                self.transport.close()


async def main(port, latency_ms):
    Api.port, Api.latency_s = port, latency_ms / 1000
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Api, "127.0.0.1", port + i) for i in range(1 + SITES)]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--latency-ms", type=float, default=100)
    arguments = parser.parse_args()
    try:
        import uvloop
        uvloop.install()
    except ImportError:
        pass
    asyncio.run(main(arguments.port, arguments.latency_ms))
