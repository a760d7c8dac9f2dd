#!/usr/bin/env python3
"""Two shuffled epochs of 1,500 JPEGs, decoded and randomly cropped to 224 x 224, in batches of 64.
usage: peer_images.py PEER

Crop of 8 to 100 % of the area at ratios 3/4 to 4/3, bilinear with antialias, flipped in half of the cases. Names that
end in `-u8` deliver u8 [n, 224, 224, 3], which is what a loader should send to a GPU that normalises; the others
normalised float32 [n, 3, 224, 224]. Two workers. Prints one JSON line: `samples_per_s` is that of the second epoch.
"""

import glob
import importlib
import io
import json
import math
import os
import random
import sys
import time
import warnings

import numpy as np

from delivered import emit
from gen import DATA, IMAGES, images

warnings.filterwarnings("ignore")
BATCH, SIDE, WORKERS = 64, 224, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILES = [str(DATA / "images-jpeg" / f"{i:05}.jpg") for i in range(IMAGES)]


def labels():
    return json.loads((DATA / "images-jpeg" / "labels.json").read_text())


def transform(u8=False):
    import torch
    import torchvision.transforms.v2 as v2

    steps = [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()]
    if not u8:
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return v2.Compose(steps)


def decode(data):
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)


def torch_loader(dataset, **more):
    import torch

    return torch.utils.data.DataLoader(dataset, num_workers=WORKERS, persistent_workers=True, **more)


class Files:
    def __init__(self, u8=False):
        self.labels, self.transform = labels(), transform(u8)

    def __len__(self):
        return IMAGES

    def __getitem__(self, i):
        with open(FILES[i], "rb") as file:
            return self.transform(decode(file.read())), self.labels[i]


def torchvision():
    return torch_loader(Files(), batch_size=BATCH, shuffle=True)


def torchvision_u8():
    return torch_loader(Files(u8=True), batch_size=BATCH, shuffle=True)


class Unpack:
    """Image and label out of a sample's dict."""

    def __init__(self, image, label):
        self.image, self.label, self.transform = image, label, transform()

    def __call__(self, sample):
        return self.transform(decode(sample[self.image])), int(sample[self.label])


def mosaic():
    from streaming import StreamingDataset

    class Images(StreamingDataset):
        unpack = Unpack("jpg", "y")

        def __getitem__(self, i):
            return self.unpack(super().__getitem__(i))

    dataset = Images(local=str(DATA / "images-mds"), batch_size=BATCH, shuffle=True, shuffle_seed=1)
    return torch_loader(dataset, batch_size=BATCH)


def litdata():
    import litdata

    class Images(litdata.StreamingDataset):
        unpack = Unpack("jpg", "y")

        def __getitem__(self, i):
            return self.unpack(super().__getitem__(i))

    dataset = Images(str(DATA / "images-litdata"), shuffle=True, seed=1)
    return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True)


def webdataset():
    import webdataset

    tars = sorted(glob.glob(str(DATA / "images-wds" / "*.tar")))
    dataset = webdataset.WebDataset(tars, shardshuffle=8, seed=1, empty_check=False).shuffle(500)
    return torch_loader(dataset.map(Unpack("jpg", "cls")).batched(BATCH), batch_size=None)


def ffcv(u8=False):
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    image = [RandomResizedCropRGBImageDecoder((SIDE, SIDE)), RandomHorizontalFlip()]
    if u8:
        image += [ToTensor()]
    else:
        mean, std = np.array(MEAN, np.float32) * 255, np.array(STD, np.float32) * 255
        image += [NormalizeImage(mean, std, np.float32), ToTensor(), ToTorchImage(convert_back_int16=False)]
    return Loader(
        str(DATA / "images-ffcv" / "images.beton"),
        batch_size=BATCH,
        num_workers=WORKERS,
        order=OrderOption.RANDOM,
        drop_last=False,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor()]},
    )


def crop_of(width, height):
    """Left, top, width and height of a random resized crop."""
    for _ in range(10):
        area = random.uniform(0.08, 1) * width * height
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if w <= width and h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def spdl(u8=False):
    import spdl.io
    import torch
    from PIL import Image
    from spdl.pipeline import PipelineBuilder

    targets = labels()
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) * 255 for v in (MEAN, STD))

    def load(i):
        with open(FILES[i], "rb") as file:
            data = file.read()
        left, top, w, h = crop_of(*Image.open(io.BytesIO(data)).size)
        flip = ",hflip" if random.random() < 0.5 else ""
        filters = f"crop={w}:{h}:{left}:{top},scale={SIDE}:{SIDE}:flags=bilinear{flip},format=rgb24"
        return spdl.io.decode_packets(spdl.io.demux_image(data), filter_desc=filters), targets[i]

    def collate(items):
        images = spdl.io.to_torch(spdl.io.convert_frames([frames for frames, _ in items]))
        if not u8:
            images = (images.permute(0, 3, 1, 2).float() - mean) / std
        return images, torch.tensor([label for _, label in items])

    class Epochs:
        def __iter__(self):
            builder = PipelineBuilder().add_source(np.random.permutation(IMAGES).tolist())
            builder = builder.pipe(load, concurrency=WORKERS).aggregate(BATCH).pipe(collate, concurrency=1).add_sink(3)
            pipeline = builder.build(num_threads=WORKERS + 1)
            with pipeline.auto_stop():
                yield from pipeline

    return Epochs()


def dali(u8=False):
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    @pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None)
    def pipeline():
        jpeg, label = fn.readers.file(
            files=FILES, labels=labels(), random_shuffle=True, initial_fill=IMAGES, name="files"
        )
        image = fn.decoders.image_random_crop(
            jpeg, device="cpu", random_area=(0.08, 1.0), random_aspect_ratio=(3 / 4, 4 / 3)
        )
        image = fn.resize(image, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=True)
        if u8:
            return fn.flip(image, horizontal=fn.random.coin_flip()), label
        mean, std = [m * 255 for m in MEAN], [s * 255 for s in STD]
        mirror = fn.random.coin_flip()
        return fn.crop_mirror_normalize(image, mirror=mirror, mean=mean, std=std, dtype=types.FLOAT), label

    policy = LastBatchPolicy.PARTIAL
    batches = DALIGenericIterator(pipeline(), ["x", "y"], reader_name="files", last_batch_policy=policy, auto_reset=True)

    class Epochs:
        def __iter__(self):
            return ((batch[0]["x"], batch[0]["y"]) for batch in batches)

    return Epochs()


def feedline(folder):
    import feedline as package

    return package.Loader(DATA / folder, BATCH, seed=1, images={"height": SIDE, "width": SIDE})


class FeedlineNormalised:
    """Our images as the peers' float32: one pass of torch over the u8 batch."""

    def __init__(self):
        import torch

        self.loader = feedline("images-feedline").torch()
        self.mean, self.std = (torch.tensor(v).view(1, 3, 1, 1) * 255 for v in (MEAN, STD))

    def __iter__(self):
        for image, y in self.loader:
            yield image.permute(0, 3, 1, 2).float().sub_(self.mean).div_(self.std), y


def single_thread(decoder):
    """Images a second that one thread decodes whole from memory, nothing else: what cores are worth."""
    encoded, _ = images()
    rates = []
    for _ in range(3):
        start = time.perf_counter()
        for data in encoded:
            decoder(data)
        rates.append(IMAGES / (time.perf_counter() - start))
    emit(samples_per_s=sorted(rates)[1])


PEERS = {
    "torchvision": (["torch", "torchvision.transforms.v2"], torchvision),
    "torchvision-u8": (["torch", "torchvision.transforms.v2"], torchvision_u8),
    "mosaicml": (["streaming", "torchvision.transforms.v2"], mosaic),
    "litdata": (["litdata", "torchvision.transforms.v2"], litdata),
    "webdataset": (["webdataset", "torchvision.transforms.v2"], webdataset),
    "ffcv": (["torch", "ffcv.loader"], ffcv),
    "ffcv-u8": (["torch", "ffcv.loader"], lambda: ffcv(u8=True)),
    "spdl": (["torch", "spdl.io"], spdl),
    "spdl-u8": (["torch", "spdl.io"], lambda: spdl(u8=True)),
    "dali": (["torch", "nvidia.dali.plugin.pytorch"], dali),
    "dali-u8": (["torch", "nvidia.dali.plugin.pytorch"], lambda: dali(u8=True)),
    "feedline-shards-u8": (["feedline"], lambda: feedline("images-feedline")),
    "feedline-tar-u8": (["feedline"], lambda: feedline("images-wds")),
    "feedline-torch": (["torch", "feedline"], FeedlineNormalised),
}


def main(peer):
    if peer == "one-thread":
        import torch

        torch.set_num_threads(1)
        single_thread(decode)
        return
    modules, make = PEERS[peer]
    for module in modules:
        importlib.import_module(module)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    expected = ("uint8", (SIDE, SIDE, 3)) if peer.endswith("-u8") else ("float32", (3, SIDE, SIDE))
    if peer == "torchvision-u8":
        expected = ("uint8", (3, SIDE, SIDE))
    start = time.perf_counter()
    loader = make()
    rates, first = [], None
    for _ in range(2):
        seen, total = 0, 0.0
        for images, _ in loader:
            first = first or time.perf_counter() - start
            found = str(images.dtype).removeprefix("torch."), tuple(images.shape[1:])
            if found != expected:
                raise SystemExit(f"{peer} delivers {found}, not {expected}")
            # A touch of every image, as a copy to a device would do more thoroughly.
            total += float(images[:, ::56, ::56, ::2].sum())
            seen += len(images)
        rates.append(seen / (time.perf_counter() - start))
        start = time.perf_counter()
    emit(samples_per_s=rates[1], first_epoch_per_s=rates[0], first_batch_ms=first * 1e3, exactly_once=seen == IMAGES)


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)
