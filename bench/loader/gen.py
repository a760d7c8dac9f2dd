#!/usr/bin/env python3
"""Writes the data of the comparison, the same samples in every loader's own format. usage: gen.py [FORMAT...]

Rows: 1,000,000 of 32 float32 and a target. `x[:, 0]` is the row number, exact in float32, so that what was delivered
tells whether every row came once and how far rows moved. Images: 1,500 JPEGs of about 500 x 400 pixels, made from the
photographs that scikit-learn and scikit-image bring along. Everything is seeded. A format whose library is not
installed is left out with a word. About 2.5 GB in $BENCH_DATA.
"""

import io
import json
import os
import pathlib
import shutil
import sys
import tarfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "python" / "tests"))
DATA = pathlib.Path(os.environ.get("BENCH_DATA") or "/tmp/feedline-bench")
ROWS, FEATURES, SHARDS = 1_000_000, 32, 16
WDS_ROWS = 200_000  # a tar member takes at least 1 KiB
IMAGES, CLASSES = 1_500, 1_000


def rows():
    """`x` [ROWS, FEATURES] and `y` [ROWS]."""
    random = np.random.default_rng(7)
    x = random.standard_normal((ROWS, FEATURES), dtype=np.float32)
    x[:, 0] = np.arange(ROWS)
    return x, random.integers(0, 2, ROWS).astype(np.float32)


def parts(*arrays, shards=SHARDS):
    """The arrays cut into shards, with each shard's number."""
    size = -(-len(arrays[0]) // shards)
    for shard in range(shards):
        yield shard, *[a[shard * size : (shard + 1) * size] for a in arrays]


def rows_npy(out):
    for shard, x, y in parts(*rows()):
        np.save(out / f"x-{shard:03}.npy", x)
        np.save(out / f"y-{shard:03}.npy", y)


def rows_feedline(out):
    import shards

    shards.write(out, *rows(), shards=SHARDS)


def rows_parquet(out):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for shard, x, y in parts(*rows()):
        columns = {f"f{i:02}": np.ascontiguousarray(x[:, i]) for i in range(FEATURES)}
        pq.write_table(pa.table({**columns, "y": y}), out / f"{shard:03}.parquet", compression="none", use_dictionary=False)


def rows_hf(out):
    import pyarrow as pa
    from datasets import Dataset

    x, y = rows()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), FEATURES)
    Dataset(pa.table({"x": lists, "y": pa.array(y)})).save_to_disk(str(out), num_shards=SHARDS)


def rows_mds(out):
    from streaming import MDSWriter

    x, y = rows()
    columns = {"x": f"ndarray:float32:{FEATURES}", "y": "float32"}
    with MDSWriter(out=str(out), columns=columns, size_limit=8 << 20) as writer:
        for row, target in zip(x, y):
            writer.write({"x": row, "y": target})


def rows_mds_block(out):
    from streaming import MDSWriter

    x, y = rows()
    with MDSWriter(out=str(out), columns={"x": "ndarray:float32", "y": "ndarray:float32"}, size_limit=8 << 20) as writer:
        for first in range(0, ROWS, 4096):
            writer.write({"x": x[first : first + 4096], "y": y[first : first + 4096]})


def lit_row(number):
    return {"x": lit_row.x[number], "y": lit_row.y[number]}


def rows_litdata(out):
    import litdata

    lit_row.x, lit_row.y = rows()
    litdata.optimize(
        fn=lit_row, inputs=list(range(ROWS)), output_dir=str(out), chunk_bytes="8MB", num_workers=1, start_method="fork"
    )


def rows_wds(out):
    x, y = rows()
    for shard, numbers in parts(np.arange(WDS_ROWS)):
        with tarfile.open(out / f"{shard:03}.tar", "w") as tar:
            for i in numbers:
                add(tar, f"{i:08}.x.bin", x[i].tobytes())
                add(tar, f"{i:08}.y.bin", y[i].tobytes())


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def photographs():
    """The images that the others are cut from."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    found = [Image.fromarray(a) for a in load_sample_images().images]
    try:
        import skimage.data

        for name in ("astronaut", "chelsea", "coffee", "rocket"):
            found.append(Image.fromarray(getattr(skimage.data, name)()).convert("RGB"))
    except (ImportError, OSError) as error:
        print("scikit-image:", error)
    return found


def images_jpeg(out):
    """Random crops with some turning, colour and sensor noise; quality 70 to 95, one in ten without chroma subsampling,
    one in twenty progressive, one in fifty grey."""
    from PIL import Image, ImageEnhance

    random = np.random.default_rng(5)
    sources = photographs()
    for number in range(IMAGES):
        source = sources[number % len(sources)]
        ratio = (4 / 3, 3 / 4, 5 / 4)[random.integers(3)]
        area = random.uniform(0.3, 0.9) * source.width * source.height
        width = int(min(source.width, source.height * ratio, (area * ratio) ** 0.5))
        height = int(width / ratio)
        left, top = random.integers(source.width - width + 1), random.integers(source.height - height + 1)
        short = int(random.integers(375, 481))
        size = (int(short * ratio), short) if ratio > 1 else (short, int(short / ratio))
        image = source.crop((left, top, left + width, top + height))
        image = image.rotate(random.uniform(-8, 8), Image.BICUBIC).resize(size, Image.LANCZOS)
        for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = change(image).enhance(random.uniform(0.7, 1.3))
        noisy = np.asarray(image, np.float32) + random.normal(0, random.uniform(0, 4), (size[1], size[0], 3))
        image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        image = image.convert("L") if random.random() < 0.02 else image
        image.save(
            out / f"{number:05}.jpg",
            quality=int(random.integers(70, 96)),
            subsampling=0 if random.random() < 0.1 else 2,
            progressive=bool(random.random() < 0.05),
        )
    labels = [int(label) for label in random.integers(0, CLASSES, IMAGES)]
    (out / "labels.json").write_text(json.dumps(labels))


def images():
    """Encoded images and their class ids."""
    folder = DATA / "images-jpeg"
    labels = json.loads((folder / "labels.json").read_text())
    return [(folder / f"{i:05}.jpg").read_bytes() for i in range(IMAGES)], labels


def images_feedline(out):
    import shards

    shards.write_images(out, *images(), classes=CLASSES, shards=8)


def images_wds(out):
    encoded, labels = images()
    for shard, numbers in parts(np.arange(IMAGES), shards=8):
        with tarfile.open(out / f"{shard:03}.tar", "w") as tar:
            for i in numbers:
                add(tar, f"{i:06}.jpg", encoded[i])
                add(tar, f"{i:06}.cls", str(labels[i]).encode())


def images_mds(out):
    from streaming import MDSWriter

    with MDSWriter(out=str(out), columns={"jpg": "bytes", "y": "int"}, size_limit=8 << 20) as writer:
        for jpg, label in zip(*images()):
            writer.write({"jpg": jpg, "y": label})


def lit_image(number):
    return {"jpg": lit_image.encoded[number], "y": lit_image.labels[number]}


def images_litdata(out):
    import litdata

    lit_image.encoded, lit_image.labels = images()
    litdata.optimize(
        fn=lit_image, inputs=list(range(IMAGES)), output_dir=str(out), chunk_bytes="8MB", num_workers=1, start_method="fork"
    )


def images_ffcv(out):
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    encoded, labels = images()

    class Images:
        def __len__(self):
            return IMAGES

        def __getitem__(self, i):
            return Image.open(io.BytesIO(encoded[i])).convert("RGB"), labels[i]

    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    DatasetWriter(str(out / "images.beton"), fields, num_workers=2).from_indexed_dataset(Images())


FORMATS = {
    f"{kind}-{name}": globals()[f"{kind}_{name.replace('-', '_')}"]
    for kind, names in {
        "rows": ("npy", "feedline", "parquet", "hf", "mds", "mds-block", "litdata", "wds"),
        "images": ("jpeg", "feedline", "wds", "mds", "litdata", "ffcv"),
    }.items()
    for name in names
}


def main():
    for name in sys.argv[1:] or FORMATS:
        out, done = DATA / name, DATA / f".{name}.done"
        if done.exists():
            continue
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        start = time.monotonic()
        try:
            FORMATS[name](out)
        except Exception as error:
            print(f"{name}: left out: {error!r}"[:300], flush=True)
            shutil.rmtree(out)
            continue
        done.touch()
        size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
        print(f"{name}: {size >> 20} MiB in {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
