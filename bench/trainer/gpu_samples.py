#!/usr/bin/env python3
"""Adds what nvidia-smi sampled to figures, and prints them. usage: gpu_samples.py SAMPLES FIGURES

A line of SAMPLES is "use in percent, MiB used". The use is the mean over the second half, when steps are taken and nothing
is compiled any more; the memory is the most of all, which is that of all processes on the GPU.
"""

import json
import sys


def main():
    with open(sys.argv[1]) as file:
        lines = [line.split(",") for line in file if line.count(",") == 1]
    samples = [(float(use), float(memory)) for use, memory in lines]
    figures = json.loads(sys.argv[2])
    later = samples[len(samples) // 2 :]
    figures["gpu_use"] = sum(use for use, _ in later) / len(later) / 100 if later else None
    figures["gpu_mib"] = max((memory for _, memory in samples), default=None)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
