"""The same work by other tools: all records of `server.py` into files.

usage: peers.py {httpx|dlt|scrapy} URL FOLDER

httpx: by hand, a task for each stream, one Parquet file for 100 pages. dlt: its rest_api source into Parquet files. Scrapy: a
spider into JSON lines. Each as its documentation would have it, with retries and what state it keeps in FOLDER.
"""
import asyncio
import os
import random
import subprocess
import sys

STREAMS = range(5)


def by_httpx(url, folder):
    import httpx
    import pyarrow
    import pyarrow.parquet

    async def page(client, at):
        for tries in range(8):
            response = await client.get(at)
            if response.status_code == 200:
                return response.json()
            if response.status_code not in (429, 503):
                response.raise_for_status()
            await asyncio.sleep(float(response.headers.get("retry-after", random.uniform(0, 0.5 * 2**tries))))
        raise RuntimeError(f"no response from {at}")

    async def stream(client, number):
        at = first = f"{url}/stream/{number}"
        rows, pages = [], 0
        while at:
            body = await page(client, at)
            rows += body["items"]
            pages += 1
            at = body["next"] and f"{first}?after={body['next']}"
            if pages % 100 == 0 or not at:
                table = pyarrow.Table.from_pylist(rows)
                pyarrow.parquet.write_table(table, f"{folder}/{number}-{pages:06}.parquet", compression="zstd")
                rows = []

    async def everything():
        async with httpx.AsyncClient(timeout=30) as client:
            await asyncio.gather(*(stream(client, number) for number in STREAMS))

    asyncio.run(everything())


def by_dlt(url, folder):
    os.environ |= {
        "DESTINATION__FILESYSTEM__BUCKET_URL": f"file://{folder}/out",
        "DLT_DATA_DIR": f"{folder}/state",
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "ERROR",
        "EXTRACT__WORKERS": "5",
        "NORMALIZE__WORKERS": "2",
        "NORMALIZE__START_METHOD": "spawn",
        "EXTRACT__DATA_WRITER__FILE_MAX_ITEMS": "100000",
        "NORMALIZE__DATA_WRITER__FILE_MAX_ITEMS": "100000",
    }
    import dlt
    from dlt.sources.rest_api import rest_api_source

    paginator = {"type": "cursor", "cursor_path": "next", "cursor_param": "after"}
    resources = [
        {"name": f"stream{n}", "endpoint": {"path": f"/stream/{n}", "data_selector": "items", "paginator": paginator}}
        for n in STREAMS
    ]
    # Lists stay one column, as with the others.
    defaults = {"write_disposition": "append", "max_table_nesting": 0}
    config = {"client": {"base_url": url}, "resource_defaults": defaults, "resources": resources}
    # Among the defaults of resources it has no effect.
    source = rest_api_source(config, parallelized=True)
    pipeline = dlt.pipeline("bench", destination="filesystem", dataset_name="d", pipelines_dir=f"{folder}/pipelines")
    pipeline.run(source, loader_file_format="parquet")


SPIDER = """
import scrapy

class Streams(scrapy.Spider):
    name = "streams"
    custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 16, "DOWNLOAD_DELAY": 0, "RETRY_TIMES": 8,
                       "ROBOTSTXT_OBEY": False, "COOKIES_ENABLED": False, "TELNETCONSOLE_ENABLED": False}

    async def start(self):
        for number in range(5):
            yield scrapy.Request(f"URL/stream/{number}")

    def parse(self, response):
        body = response.json()
        yield from body["items"]
        if body["next"]:
            yield scrapy.Request(f"{response.url.split('?')[0]}?after={body['next']}")
"""


def by_scrapy(url, folder):
    spider = f"{folder}/spider.py"
    with open(spider, "w") as file:
        file.write(SPIDER.replace("URL", url))
    arguments = ["-m", "scrapy", "runspider", spider, "-o", f"{folder}/items.jsonl", "-s", f"JOBDIR={folder}/job"]
    subprocess.run([sys.executable, *arguments, "--loglevel", "ERROR"], check=True)


if __name__ == "__main__":
    who, url, folder = sys.argv[1:]
    {"httpx": by_httpx, "dlt": by_dlt, "scrapy": by_scrapy}[who](url, folder)
