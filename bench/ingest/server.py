"""An API on loopback that answers faster than its clients read: pages made before the first request.

usage: server.py PORT PAGES [FAULTS_PER_1000]

Five streams, `/stream/0` to `/stream/4`, of PAGES pages of 200 nested records of about 250 bytes:
    GET /stream/2?after=TOKEN -> {"items": [...], "next": TOKEN or null}
Tokens are hashes, so that a page cannot be asked for before the one in front of it was read. Of 1,000 pages
FAULTS_PER_1000 (default 10) are refused when first asked for, by 503 or by 429 with `Retry-After: 1`.
    GET /count -> {"served": pages, "twice": pages served more than once}; GET /again forgets what was asked for
"""
import asyncio
import hashlib
import json
import random
import sys

STREAMS, RECORDS = 5, 200


def token(stream, page):
    return hashlib.sha256(f"{stream} {page}".encode()).hexdigest()[:20]


def record(draw, number):
    return {
        "id": number,
        "code": f"C{draw.randrange(10**7):07}",
        "title": f"Thing {draw.randrange(10**5)} from shelf {draw.randrange(900)}",
        "amount": round(draw.gammavariate(2, 40), 2),
        "stock": draw.randrange(1000),
        "listed": draw.random() < 0.8,
        "changed": f"2025-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02}T{draw.randrange(24):02}:30:00Z",
        "owner": {"id": draw.randrange(9000), "land": draw.choice(["NL", "PL", "IN", "KE", "CL"]),
                  "score": draw.choice([None, 3.5, 4.25, 4.75])},
        "labels": [f"l{draw.randrange(200)}" for _ in range(draw.randrange(4))],
        "size": {"long": draw.randrange(1, 900) / 10, "wide": draw.randrange(1, 900) / 10, "unit": "mm"},
    }


def answer(status, body=b"", more=""):
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


def pages(count):
    made = {}
    for stream in range(STREAMS):
        draw = random.Random(stream)
        for page in range(count):
            first = (stream * count + page) * RECORDS
            items = [record(draw, first + i) for i in range(RECORDS)]
            following = token(stream, page + 1) if page + 1 < count else None
            body = json.dumps({"items": items, "next": following}, separators=(",", ":")).encode()
            at = f"/stream/{stream}" + (f"?after={token(stream, page)}" if page else "")
            made[at.encode()] = answer("200 OK", body)
    return made


class Api(asyncio.Protocol):
    pages, faults, asked, served = {}, 0, {}, {}

    def connection_made(self, transport):
        self.transport, self.rest = transport, b""

    def data_received(self, data):
        *requests, self.rest = (self.rest + data).split(b"\r\n\r\n")
        for request in requests:
            self.transport.write(self.reply(request.split(b" ", 2)[1]))

    def reply(self, at):
        if at == b"/count":
            twice = sum(n > 1 for n in self.served.values())
            return answer("200 OK", json.dumps({"served": len(self.served), "twice": twice}).encode())
        if at == b"/again":
            self.asked.clear(), self.served.clear()
            return answer("200 OK", b"{}")
        page = self.pages.get(at)
        if page is None:
            return answer("404 Not Found")
        self.asked[at] = self.asked.get(at, 0) + 1
        lot = int.from_bytes(hashlib.sha256(at).digest()[:4], "big")
        if self.asked[at] == 1 and lot % 1000 < self.faults:
            return answer("503 Service Unavailable") if lot & 4096 else answer("429 Too Many Requests", more="Retry-After: 1\r\n")
        self.served[at] = self.served.get(at, 0) + 1
        return page


async def main(port, count, faults=10):
    Api.pages, Api.faults = pages(count), faults
    server = await asyncio.get_running_loop().create_server(Api, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop
        uvloop.install()
    except ImportError:
        print("without uvloop the server may be slower than its clients", file=sys.stderr)
    asyncio.run(main(*map(int, sys.argv[1:])))
