"""Writes schedules.json: rates of PyTorch's schedulers at steps 0, 1, 2, ...

python trainer/tests/torch/schedules.py > trainer/tests/torch/schedules.json   (torch 2.15.0)
"""

import json
import math
import warnings

import torch
from torch.optim import lr_scheduler as S

warnings.filterwarnings("ignore")
PEAK, SHARE, STEPS = 0.5, 0.02, 40


def rates(make, steps=STEPS):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = make(optimizer)
    found = []
    for _ in range(steps + 1):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


low = PEAK * SHARE
result = {
    "cosine": rates(lambda o: S.CosineAnnealingLR(o, STEPS, eta_min=low)),
    "linear": rates(lambda o: S.LinearLR(o, 1.0, SHARE, STEPS)),
    "restarts": rates(lambda o: S.CosineAnnealingWarmRestarts(o, 4, 1, eta_min=low)),
    "restarts_longer": rates(lambda o: S.CosineAnnealingWarmRestarts(o, 4, 3, eta_min=low), 60),
    "every": rates(lambda o: S.StepLR(o, 7, gamma=0.3)),
    "milestones": rates(lambda o: S.MultiStepLR(o, [1, 5, 21], gamma=0.3)),
}

optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
scheduler = S.ReduceLROnPlateau(optimizer, factor=0.4, patience=2, threshold=0.05, min_lr=PEAK * 0.01)
# Losses that fall too slowly to count, then quickly, then only go up and down.
losses = [2 * 0.985**i for i in range(12)] + [1.2 * 0.8**i for i in range(8)]
losses += [0.3 + 0.1 * math.sin(2.5 * i) for i in range(20)]
losses = [round(loss, 6) for loss in losses]
result["plateau_losses"], result["plateau"] = losses, []
for loss in losses:
    scheduler.step(loss)
    result["plateau"].append(optimizer.param_groups[0]["lr"])

print("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in result.items()) + "\n}")
