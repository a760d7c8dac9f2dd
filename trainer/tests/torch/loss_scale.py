"""Writes loss_scale.json: the scale after each step by the rule of PyTorch's GradScaler, from whether the step's gradient
was finite.

python trainer/tests/torch/loss_scale.py > trainer/tests/torch/loss_scale.json   (torch 2.15.0)
"""

import json

import torch


def case(initial, growth, growth_steps, backoff, finite):
    scale = torch.tensor([initial], dtype=torch.float32)
    tracker = torch.zeros(1, dtype=torch.int32)
    scales = []
    for ok in finite:
        found_inf = torch.tensor([0.0 if ok else 1.0])
        torch._amp_update_scale_(scale, tracker, found_inf, growth, backoff, growth_steps)
        scales.append(scale.item())
    return {
        "initial": initial,
        "growth": growth,
        "growth_steps": growth_steps,
        "backoff": backoff,
        "finite": finite,
        "scales": scales,
    }


def finite(n, every):
    return [(i * i + 3) % every != 0 for i in range(n)]


print(
    json.dumps(
        [
            case(65536.0, 2.0, 5, 0.5, finite(60, 7)),
            case(2.0**120, 2.0, 2, 0.5, [True] * 30 + [False] * 3 + [True] * 5),
            case(1024.0, 1.5, 3, 0.7, finite(40, 11)),
            case(65536.0, 2.0, 40, 0.5, [False] * 12 + [True] * 41),
        ]
    )
)
