"""The cases: what is served, in how many requests, and feedline's pipeline for it.

usage: cases.py CASE PORT ROOT CONNECTIONS; prints the pipeline. CONNECTIONS of 0 leaves the number to the program.
"""
import json
import math
import sys
from dataclasses import dataclass

PER_PAGE = 100
SITES, SITE_PAGES, LINKS = 5, 300, 20


@dataclass
class Case:
    """What is to be landed. `requests`: fewest that get it. `chain`: of these, the longest run in which each needs the response
    before it."""

    requests: int
    chain: int
    records: int
    paths: list
    keys: str = ""

    def floor_s(self, connections, latency_s):
        return max(math.ceil(self.requests / connections), self.chain) * latency_s


def pages(kind, more="", requests=200, chain=1):
    size = "limit" if kind == "offset" else "per_page"
    keys = f'pagination = {{ type = "{kind}", size_param = "{size}", page_size = {PER_PAGE}{more} }}'
    return {"requests": requests, "chain": chain, "records": 20_000, "keys": keys}


def values(count):
    return f"for_each = {{ param = 'v', values = {json.dumps([str(v) for v in range(count)])} }}"


TOTAL = ', total_path = "total"'
CASES = {
    # An empty page ends what names no total.
    "numbered": Case(**pages("page", requests=201), paths=["/numbered"]),
    "numbered-total": Case(**pages("page", TOTAL, chain=2), paths=["/numbered-total"]),
    "offset": Case(**pages("offset", requests=201), paths=["/offset"]),
    "offset-total": Case(**pages("offset", TOTAL, chain=2), paths=["/offset-total"]),
    "short": Case(**pages("page", TOTAL, chain=2), paths=[f"/short/{i}" for i in range(8)]),
    "cursor": Case(500, 100, 50_000, [f"/cursor/{i}" for i in range(5)],
                   'pagination = { type = "cursor", cursor_param = "cursor", cursor_path = "next" }'),
    "value": Case(200, 1, 20_000, ["/value/{v}"], values(200)),
    "value-pages": Case(200, 2, 20_000, ["/value-pages/{v}"], pages("page", TOTAL)["keys"] + "\n" + values(50)),
    # A polite crawl sends a host one request at a time: robots.txt and the first page, then the same of another host.
    "crawl": Case(SITE_PAGES + SITES, 2 + 1 + SITE_PAGES // SITES, SITE_PAGES, ["/page/0"]),
    # What a program takes to start and end, without any wait.
    "nothing": Case(0, 0, 0, ["/nothing"]),
}

CRAWL = """type = "html"
private_hosts = ["127.0.0.1"]
page = {{ extract = "rows", rows = "article", columns = {{ id = "@id", title = "h1", text = "p" }} }}
crawl = {{ delay_ms = 0, depth = 9{more} }}
"""
REST = """type = "rest"
records = "items"
{keys}
"""


def url_of(name, port):
    """Where a case is served; the site begins on the first port behind the API's."""
    return f"http://127.0.0.1:{port + (name == 'crawl')}"


def pipeline(name, port, root, connections):
    case, url = CASES[name], url_of(name, port)
    text = f'[pipeline]\nname = "latency"\nroot = "{root}"\n'
    for i, path in enumerate(case.paths):
        text += f'\n[[source]]\nname = "{name}-{i}"\nurl = "{url}{path}"\n'
        if name == "crawl":
            text += CRAWL.format(more=f", concurrency = {connections}" if connections else "")
            continue
        text += REST.format(keys=case.keys)
        if connections:
            text += f"limits = {{ concurrency = {connections} }}\n"
    return text


if __name__ == "__main__":
    name, port, root, connections = sys.argv[1:]
    print(pipeline(name, int(port), root, int(connections)), end="")
