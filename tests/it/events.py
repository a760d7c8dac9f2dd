"""Compares what TensorBoard reads of a run's event files with its metrics.jsonl: events.py RUN_FOLDER."""

import json
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder = sys.argv[1]
events = EventAccumulator(folder + "/events", size_guidance={"scalars": 0})
events.Reload()
expected = {}
for line in open(folder + "/metrics.jsonl"):
    line = json.loads(line)
    for name, value in line.items():
        if name in ("kind", "step", "epoch", "unix_s") or isinstance(value, bool):
            continue
        if line["kind"] == "step":
            tag = "train/" + name
        elif name.startswith("validation_"):
            tag = "validation/" + name.removeprefix("validation_")
        else:
            tag = "epoch/" + name
        value = struct.unpack("<f", struct.pack("<f", value))[0]
        expected.setdefault(tag, []).append((line["unix_s"], line["step"], value))
assert sorted(events.Tags()["scalars"]) == sorted(expected), (events.Tags(), sorted(expected))
for tag, points in expected.items():
    found = [(e.wall_time, e.step, e.value) for e in events.Scalars(tag)]
    assert found == points, (tag, found[:3], points[:3])
print(f"{len(expected)} tags, {sum(map(len, expected.values()))} scalars equal")
