"""Writes optimizers.json: what PyTorch's optimizers make of given gradients, step by step, in float64.

python trainer/tests/torch/optimizers.py > trainer/tests/torch/optimizers.json   (torch 2.15.0)
"""

import json
import math

import torch

SHAPES = {"matrix": [3, 4], "vector": [4], "stack": [2, 3, 2]}
STEPS = 24


def rate(step):
    return 0.05 / (1 + 0.1 * step)


def gradient(step, length):
    """Smooth, of changing sign and size, exact enough to be written again by whoever reads this."""
    return [math.sin(0.9 * step + 1.7 * i) * (1 + i % 3) * 0.4 for i in range(length)]


def initial(length):
    return [math.cos(1.3 * i) * 0.8 for i in range(length)]


def cut(flat):
    tensors, begin = [], 0
    for shape in SHAPES.values():
        size = math.prod(shape)
        tensors.append(torch.tensor(flat[begin : begin + size], dtype=torch.float64).reshape(shape))
        begin += size
    return tensors


LENGTH = sum(math.prod(shape) for shape in SHAPES.values())


def run(make):
    """The vector is not decayed: it represents a bias."""
    parameters = [torch.nn.Parameter(t) for t in cut(initial(LENGTH))]
    matrix, vector, stack = parameters
    optimizer = make([{"params": [matrix, stack]}, {"params": [vector], "weight_decay": 0.0}])
    steps = []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        for parameter, g in zip(parameters, cut(gradient(step, LENGTH))):
            parameter.grad = g
        optimizer.step()
        flat = torch.cat([p.detach().flatten() for p in parameters])
        steps.append([float(f"{w:.7g}") for w in flat.tolist()])
    return steps


T = torch.optim
CASES = {
    "sgd": lambda p: T.SGD(p, lr=1.0),
    "sgd_l2": lambda p: T.SGD(p, lr=1.0, weight_decay=0.3),
    "sgd_momentum": lambda p: T.SGD(p, lr=1.0, momentum=0.9, dampening=0.2, weight_decay=0.3),
    "sgd_nesterov": lambda p: T.SGD(p, lr=1.0, momentum=0.8, nesterov=True),
    "adam": lambda p: T.Adam(p, lr=1.0, betas=(0.9, 0.99)),
    "adam_l2": lambda p: T.Adam(p, lr=1.0, betas=(0.9, 0.99), weight_decay=0.3),
    "adamw": lambda p: T.AdamW(p, lr=1.0, betas=(0.9, 0.99), weight_decay=0.3),
    "adafactor": lambda p: T.Adafactor(p, lr=1.0, eps=(2.0**-23, 1e-3), weight_decay=0.0),
    "adafactor_decay": lambda p: T.Adafactor(p, lr=1.0, eps=(2.0**-23, 1e-3), d=1.2, weight_decay=0.3),
}

cases = {name: run(make) for name, make in CASES.items()}
lines = []
for name, steps in cases.items():
    rows = ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in steps)
    lines.append(f'"{name}": [\n{rows}]')
print("{\n" + ",\n".join(lines) + "\n}")
