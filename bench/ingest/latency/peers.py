"""The same work by other tools: a case of `server.py` into files.

usage: peers.py {httpx|dlt|scrapy} CASE PORT FOLDER CONNECTIONS

httpx: a script by hand, as many requests at a time as it may, one Parquet file at the end. dlt: its rest_api source for
sources and streams, deferred calls where the addresses are known. Scrapy: the crawl, a request at a time to a host.
"""
import asyncio
import itertools
import os
import subprocess
import sys

from cases import CASES, PER_PAGE, url_of


def params(case, number):
    """Query of page `number`, from 0."""
    if case.startswith("offset"):
        return {"offset": number * PER_PAGE, "limit": PER_PAGE}
    return {"page": number + 1, "per_page": PER_PAGE}


def by_httpx(case, url, folder, connections):
    import httpx
    import pyarrow
    import pyarrow.parquet

    rows, slots = [], asyncio.Semaphore(connections)

    async def page(client, path, query=None):
        async with slots:
            response = await client.get(url + path, params=query)
            response.raise_for_status()
        body = response.json()
        rows.extend(body["items"])
        return body

    async def with_total(client, path):
        first = await page(client, path, params(case, 0))
        count = -(-first["total"] // PER_PAGE)
        await asyncio.gather(*(page(client, path, params(case, n)) for n in range(1, count)))

    async def to_empty(client, path):
        numbers = itertools.count()

        async def worker():
            while (await page(client, path, params(case, next(numbers))))["items"]:
                pass

        await asyncio.gather(*(worker() for _ in range(connections)))

    async def stream(client, path):
        query = None
        while following := (await page(client, path, query))["next"]:
            query = {"cursor": following}

    async def everything():
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        async with httpx.AsyncClient(timeout=30, limits=limits) as client:
            ways = {"numbered": to_empty, "offset": to_empty, "cursor": stream, "value": page, "nothing": page}
            each = ways.get(case, with_total)
            await asyncio.gather(*(each(client, path) for path in paths(case)))

    asyncio.run(everything())
    if rows:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), f"{folder}/rows.parquet", compression="zstd")


def paths(case):
    """The addresses of a case, one for each value."""
    path = CASES[case].paths[0]
    count = {"value": 200, "value-pages": 50}.get(case)
    return [path.format(v=v) for v in range(count)] if count else CASES[case].paths


def by_dlt(case, url, folder, connections):
    os.environ |= {
        "DESTINATION__FILESYSTEM__BUCKET_URL": f"file://{folder}/out",
        "DLT_DATA_DIR": f"{folder}/state",
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "ERROR",
        "EXTRACT__WORKERS": str(connections),
        "EXTRACT__MAX_PARALLEL_ITEMS": str(max(20, 2 * connections)),
    }
    import dlt
    from dlt.sources.helpers import requests
    from dlt.sources.rest_api import rest_api_source

    def rows(path, query=None):
        body = requests.get(url + path, params=query).json()
        return body["items"], body.get("total")

    @dlt.defer
    def deferred(path, query=None):
        return rows(path, query)[0]

    @dlt.resource(name="pages")
    def with_total():
        path = paths(case)[0]
        first, total = rows(path, params(case, 0))
        yield first
        for number in range(1, -(-total // PER_PAGE)):
            yield deferred(path, params(case, number))

    @dlt.resource(name="ids")
    def ids():
        yield from paths(case)

    @dlt.transformer(name="values")
    def values(path):
        @dlt.defer
        def all_pages():
            found, total = rows(path, params(case, 0))
            for number in range(1, -(-(total or 0) // PER_PAGE)):
                found += rows(path, params(case, number))[0]
            return found

        yield all_pages()

    def api():
        paginator = {
            # It cannot make pages of a number of records, and asks for one page more.
            "short": {"type": "page_number", "base_page": 1, "total_path": None},
            "cursor": {"type": "cursor", "cursor_path": "next", "cursor_param": "cursor"},
            "nothing": "single_page",
        }[case]
        defaults = {"write_disposition": "append", "endpoint": {"data_selector": "items", "paginator": paginator}}
        resources = [{"name": f"s{n}", "endpoint": {"path": path}} for n, path in enumerate(paths(case))]
        config = {"client": {"base_url": url}, "resource_defaults": defaults, "resources": resources}
        # Among the defaults of resources it has no effect.
        return rest_api_source(config, parallelized=True)

    source = ids | values if case.startswith("value") else with_total if case.endswith("-total") else api()
    pipeline = dlt.pipeline("bench", destination="filesystem", dataset_name="d", pipelines_dir=f"{folder}/pipelines")
    pipeline.run(source, loader_file_format="parquet")


SPIDER = """
import scrapy
from urllib.parse import urlsplit

class Site(scrapy.Spider):
    name = "site"
    custom_settings = {"CONCURRENT_REQUESTS": CONNECTIONS, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "DOWNLOAD_DELAY": 0.001,
                       "ROBOTSTXT_OBEY": True, "COOKIES_ENABLED": False, "TELNETCONSOLE_ENABLED": False}

    # A port is a host here; for Scrapy it is not. Without any delay it sends a host more than a request at a time.
    def ask(self, url):
        return scrapy.Request(url, meta={"download_slot": urlsplit(url).netloc})

    async def start(self):
        for url in STARTS:
            yield self.ask(url)

    def parse(self, response):
        for page in response.css("article"):
            yield {"id": page.attrib["id"], "title": page.css("h1::text").get(), "text": page.css("p::text").get()}
        for href in response.css("a::attr(href)").getall():
            yield self.ask(response.urljoin(href))
"""


def by_scrapy(case, url, folder, connections):
    spider = f"{folder}/spider.py"
    with open(spider, "w") as file:
        starts = [url + path for path in paths(case) if case == "crawl"]
        file.write(SPIDER.replace("CONNECTIONS", str(connections)).replace("STARTS", repr(starts)))
    arguments = ["-m", "scrapy", "runspider", spider, "-o", f"{folder}/items.jsonl"]
    subprocess.run([sys.executable, *arguments, "--loglevel", "ERROR"], check=True)


if __name__ == "__main__":
    who, case, port, folder, connections = sys.argv[1:]
    run = {"httpx": by_httpx, "dlt": by_dlt, "scrapy": by_scrapy}[who]
    run(case, url_of(case, int(port)), folder, int(connections))
