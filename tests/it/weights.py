"""An MLP 16-16-16-1 with GELU, by PyTorch where it is installed and by numpy elsewhere.

usage: weights.py make FOLDER                         writes torch.safetensors and own.safetensors, without metadata
       weights.py check FILE FEATURES PREDICTIONS TRANSFORM   compares predictions with those of the weights in FILE

Prints what computed, and the largest difference in standard deviations of the target.
"""
import json
import math
import pathlib
import struct
import sys

import numpy as np

try:
    import torch
except ImportError:
    torch = None

WIDTHS = [16, 16, 16, 1]
PLACES = [0, 2, 4]


def write(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        values = np.ascontiguousarray(values, np.float32)
        end = len(data) + values.nbytes
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), end]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    metadata, data = header.pop("__metadata__", {}), content[8 + length :]
    tensors = {}
    for name, facts in header.items():
        begin, end = facts["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], np.float32).reshape(facts["shape"])
    return tensors, metadata


def network():
    linear = [torch.nn.Linear(a, b) for a, b in zip(WIDTHS, WIDTHS[1:])]
    return torch.nn.Sequential(linear[0], torch.nn.GELU(), linear[1], torch.nn.GELU(), linear[2])


def make(folder):
    folder = pathlib.Path(folder)
    if torch:
        torch.manual_seed(7)
        tensors = {name: values.numpy() for name, values in network().state_dict().items()}
    else:
        random = np.random.default_rng(7)
        tensors = {}
        for place, from_, to in zip(PLACES, WIDTHS, WIDTHS[1:]):
            tensors[f"{place}.weight"] = random.uniform(-0.25, 0.25, (to, from_))
            tensors[f"{place}.bias"] = random.uniform(-0.25, 0.25, to)
    write(folder / "torch.safetensors", tensors)
    write(folder / "own.safetensors", {name: values.T for name, values in tensors.items()})


def by_torch(tensors, x):
    layers = network()
    own = {f"{place}.{kind}": torch.tensor(tensors[f"layer.{i}.{kind}"].copy())
           for i, place in enumerate(PLACES) for kind in ("weight", "bias")}
    layers.load_state_dict(own, strict=True)
    with torch.no_grad():
        return layers(torch.tensor(x, dtype=torch.float32)).numpy()[:, 0].astype(np.float64)


def by_numpy(tensors, x):
    gelu = np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))))
    for i in range(3):
        x = x @ tensors[f"layer.{i}.weight"].T.astype(np.float64) + tensors[f"layer.{i}.bias"]
        x = gelu(x) if i < 2 else x
    return x[:, 0]


def check(file, features, predictions, transform):
    tensors, metadata = read(file)
    names = {f"{place}.{kind}": f"layer.{i}.{kind}" for i, place in enumerate(PLACES) for kind in ("weight", "bias")}
    tensors = {names.get(name, name): values for name, values in tensors.items()}
    if pathlib.Path(file).name == "own.safetensors" or metadata.get("feedline.layout") == "feedline":
        tensors = {name: values.T for name, values in tensors.items()}
    lines = [json.loads(line) for line in open(features)]
    x = np.array([[line[f"f{i}"] for i in range(16)] for line in lines])
    said = np.array([json.loads(line)["prediction"] for line in open(predictions)])
    target = json.load(open(transform))["target"]
    said = (said - target["offset"]) / target["scale"]
    for name, compute in [("numpy", by_numpy)] + ([("torch", by_torch)] if torch else []):
        found = compute(tensors, x)
        difference = np.abs(found - said).max()
        print(f"{name}: {len(said)} rows, outputs from {found.min():.3f} to {found.max():.3f}, differ by {difference:.1e} at most")
        assert difference < 1e-6, difference
        assert found.std() > 0.01


{"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
