"""Counts the ids in what a tool has written. usage: landed.py WHO FOLDER RECORDS; ends with 1 when some are lost or doubled."""
import glob
import json
import sys


def ids(who, folder):
    if who == "scrapy":
        with open(f"{folder}/items.jsonl") as file:
            for line in file:
                try:
                    yield json.loads(line)["id"]
                except ValueError:
                    continue
        return
    import pyarrow.parquet

    inside = {"feedline": "landing/*/data", "dlt": "out/**", "httpx": ""}[who]
    for name in glob.glob(f"{folder}/{inside}/*.parquet", recursive=True):
        if "/_dlt" not in name:
            yield from pyarrow.parquet.ParquetFile(name).read(columns=["id"])["id"].to_pylist()


def main(who, folder, records):
    found = list(ids(who, folder))
    distinct = set(found)
    lost, doubled = records - len(distinct), len(found) - len(distinct)
    print(json.dumps({"who": who, "records": len(found), "lost": lost, "doubled": doubled}))
    return int(lost + doubled > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
