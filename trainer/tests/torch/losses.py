"""Writes losses.json: PyTorch's losses of given outputs and targets, in float64: of each sample, their mean, and the
gradient of the mean.

python trainer/tests/torch/losses.py > trainer/tests/torch/losses.json   (torch 2.15.0)
"""

import json

import torch
import torch.nn.functional as F

NUMBERS = [0.5, -1.25, 3.0, 0.0, -0.75, 2.0, 0.1]
PREDICTED = [0.25, 1.5, -2.0, 0.0, -0.8, 2.5, 40.0]
CLASSES = [0, 2, 1, 3, 2, 2]
LOGITS = [
    [1.5, -0.5, 0.25, 0.0],
    [0.1, 0.2, 0.3, 0.4],
    [-3.0, 20.0, 1.0, 2.0],
    [50.0, -50.0, 0.0, 1.0],
    [0.0, 0.0, 0.0, 0.0],
    [-1.0, -2.0, -0.5, 4.0],
]
WEIGHTS = [0.5, 2.0, 1.25, 3.0]
BINARY = [0, 1, 1, 0, 1, 0, 1]
BINARY_LOGITS = [0.3, -1.5, 2.0, 0.0, 0.0, 60.0, -60.0]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def of(outputs, per_sample, mean):
    outputs = tensor(outputs).requires_grad_()
    value = mean(outputs)
    value.backward()
    losses = per_sample(outputs.detach())
    return {
        "losses": losses.flatten().tolist(),
        "mean": value.item(),
        "gradient": outputs.grad.flatten().tolist(),
    }


def numbers(function, **settings):
    y = tensor(NUMBERS)
    return of(
        PREDICTED,
        lambda x: function(x, y, reduction="none", **settings),
        lambda x: function(x, y, **settings),
    )


def classes(**settings):
    y = torch.tensor(CLASSES)
    return of(
        LOGITS,
        lambda x: F.cross_entropy(x, y, reduction="none", **settings),
        lambda x: F.cross_entropy(x, y, **settings),
    )


def binary(**settings):
    y = tensor(BINARY)
    call = F.binary_cross_entropy_with_logits
    return of(
        BINARY_LOGITS,
        lambda x: call(x, y, reduction="none", **settings),
        lambda x: call(x, y, **settings),
    )


def pinball(x, y, reduction="mean", quantile=0.5):
    losses = torch.maximum(quantile * (y - x), (quantile - 1) * (y - x))
    return losses if reduction == "none" else losses.mean()


result = {
    "mse": numbers(F.mse_loss),
    "mae": numbers(F.l1_loss),
    "huber": numbers(F.huber_loss, delta=0.6),
    "quantile": numbers(pinball, quantile=0.8),
    "cross_entropy": classes(),
    "smoothed": classes(label_smoothing=0.15),
    "weighted": classes(weight=tensor(WEIGHTS)),
    "smoothed_and_weighted": classes(weight=tensor(WEIGHTS), label_smoothing=0.15),
    "binary": binary(),
    "binary_weighted": binary(pos_weight=tensor(2.5)),
}
print("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in result.items()) + "\n}")
