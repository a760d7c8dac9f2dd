#!/usr/bin/env python3
"""Trains a model of the bench in PyTorch on batches from memory, and says what a step takes.

usage: peer_torch.py CASE FOLDER STEPS [--device cpu|cuda] [--precision f32|bf16] [--compile] [--threads N] [--batch N]

CASE is mlp, cnn, transformer, lstm or gpt2; FOLDER holds x.bin and y.bin, the arrays that `steps data CASE FOLDER` writes. The
layers, their initial distributions, AdamW, the clipping and the batch are those of our models. Prints one line of JSON:
figures of the steps after the 20th, processor time being that of all threads of this process.
"""

import argparse
import json
import math
import resource
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WARM = 20
BATCH = {"mlp": 4096, "cnn": 128, "transformer": 16, "lstm": 64, "gpt2": 8}
CONTEXT = {"transformer": 128, "lstm": 32, "gpt2": 1024}
# Width, heads, blocks, ids.
SIZES = {"transformer": (128, 4, 2, 256), "gpt2": (768, 12, 12, 50257)}
WIDTH, VOCABULARY, DEVIATION = 128, 256, 0.02


def he(layer):
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer


def last(layer):
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def mlp():
    hidden = [he(nn.Linear(64, 256)), nn.GELU(), he(nn.Linear(256, 256)), nn.GELU()]
    return nn.Sequential(*hidden, last(nn.Linear(256, 1)))


def cnn():
    def stage(a, b):
        return [he(nn.Conv2d(a, b, 3, padding=1)), nn.ReLU(), nn.MaxPool2d(2)]

    head = [nn.Flatten(), he(nn.Linear(64 * 7 * 7, 128)), nn.ReLU(), last(nn.Linear(128, 10))]
    return nn.Sequential(*stage(3, 32), *stage(32, 64), *head)


class Block(nn.Module):
    """GPT-2's: norms in front, GELU, four times the width inside."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for layer in (self.qkv, self.up, self.out, self.down):
            deviation = DEVIATION / (math.sqrt(2 * layers) if layer in (self.out, self.down) else 1)
            nn.init.normal_(layer.weight, std=deviation)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        rows, length, width = x.shape
        heads = self.qkv(self.norms[0](x)).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    def __init__(self, case="transformer"):
        super().__init__()
        width, heads, layers, vocabulary = SIZES[case]
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT[case], width)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=DEVIATION)
        self.blocks = nn.Sequential(*(Block(width, heads, layers) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        return functional.linear(self.norm(self.blocks(x)), self.tokens.weight).flatten(0, 1)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(VOCABULARY, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.last = last(nn.Linear(WIDTH, VOCABULARY))
        nn.init.normal_(self.tokens.weight)
        nn.init.zeros_(self.lstm.bias_ih_l0)
        nn.init.zeros_(self.lstm.bias_hh_l0)
        nn.init.ones_(self.lstm.bias_ih_l0[WIDTH : 2 * WIDTH])

    def forward(self, ids):
        return self.last(self.lstm(self.tokens(ids))[0]).flatten(0, 1)


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": Transformer, "lstm": Lstm, "gpt2": lambda: Transformer("gpt2")}


def load(case, folder, batch):
    """Batches in memory, as (inputs, targets)."""
    read = lambda name, kind, *shape: torch.from_numpy(np.fromfile(f"{folder}/{name}.bin", kind).reshape(shape))
    if case == "mlp":
        x, y = read("x", np.float32, -1, 64), read("y", np.float32, -1, 1)
    elif case == "cnn":
        x, y = read("x", np.uint8, -1, 3, 28, 28), read("y", np.int32, -1).long()
    else:
        ids = read("x", np.int32, -1, CONTEXT[case] + 1).long()
        x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    return list(zip(x.split(batch), y.split(batch)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=MODELS)
    parser.add_argument("folder")
    parser.add_argument("steps", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    device, cuda = torch.device(given.device), given.device.startswith("cuda")
    batches = load(given.case, given.folder, given.batch or BATCH[given.case])
    model = MODELS[given.case]().to(device)
    called = torch.compile(model) if given.compile else model
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=cuda or None)

    def step(x, y):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        if given.case == "cnn":
            x = x.float() / 255
        with torch.autocast(device.type, torch.bfloat16, enabled=given.precision == "bf16"):
            out = called(x)
            loss = functional.mse_loss(out, y) if given.case == "mlp" else functional.cross_entropy(out, y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    def now():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), usage.ru_utime + usage.ru_stime, usage.ru_stime

    losses = []
    for number in range(given.steps):
        if number == WARM:
            begin = now()
        losses.append(step(*batches[number % len(batches)]))
    wall, cpu, kernel = (b - a for a, b in zip(begin, now()))
    timed = given.steps - WARM
    figures = {
        "steps_per_s": timed / wall,
        "cpu_ms_per_step": cpu / timed * 1e3,
        "kernel_ms_per_step": kernel / timed * 1e3,
        "loss_first": losses[0],
        "loss_last": sum(losses[-20:]) / 20,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if cuda:
        figures["peak_gpu_mib"] = torch.cuda.max_memory_allocated() / 2**20
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
