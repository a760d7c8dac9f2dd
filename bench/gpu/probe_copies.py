#!/usr/bin/env python3
"""Copies page-locked memory to a GPU, one copy after another on a stream, timed by the GPU: usage: probe_copies.py BYTES"""

import json
import sys

import torch

WARM, SECONDS, MOST = 3, 0.5, 5000


def main():
    size = int(sys.argv[1])
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    host.fill_(0x5A)
    device = torch.empty(size, dtype=torch.uint8, device="cuda")

    def seconds(copies):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(copies):
            device.copy_(host, non_blocking=True)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    # The first copies wake the link up.
    one = seconds(WARM) / WARM
    copies = min(MOST, max(10, int(SECONDS / one)))
    print(json.dumps({"copy_bytes": size, "probe_bytes_per_s": size * copies / seconds(copies)}))


if __name__ == "__main__":
    main()
