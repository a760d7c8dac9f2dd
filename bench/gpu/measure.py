#!/usr/bin/env python3
"""Runs on a device what pack.sh has packed, within a time, and prints JSON lines and a table.

usage: measure.py [--device cuda|wgpu|cpu] [--seconds 480] [--steps 200] [--cases mlp,cnn,...] [--out FILE] [--no-peer]

Needs Python 3.9; with --device cuda also the driver, NVRTC and the headers of CUDA, and PyTorch for the peer. In turn:
every layer and model beside the processor, the copies of batches to the device (also under compute-sanitizer where that is
installed, and with little locked memory), then training of each case in each precision beside PyTorch, eager and compiled,
on the same arrays. Beside the rate at which batches are copied is that of plain copies of as many bytes by PyTorch, from
page-locked memory. What a missing program would measure is skipped, as is what no time is left for, and a line says so.
Ends with 0 when all that ran is well, 1 when something is not, 2 when the device is missing.
"""

import argparse
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = ["feed", "mlp", "cnn", "transformer", "lstm", "gpt2"]
BATCH = {"feed": 65536, "mlp": 4096, "cnn": 128, "transformer": 16, "lstm": 64, "gpt2": 8}
# The model of a case of another name: `feed` has large batches, whose copies take longer than ordering them.
MODEL = {"feed": "mlp"}
WARM = 20
LOCKED_BYTES = 64 << 10

# Dense peaks in FLOP/s by a part of the name, those of the trainer's reports: products in TF32 and in bf16.
PEAKS = {
    "H200": (495e12, 989e12),
    "H100 PCIe": (378e12, 756e12),
    "H100": (495e12, 989e12),
    "A100": (156e12, 312e12),
    "L40S": (183e12, 362e12),
    "RTX 4090": (82.6e12, 165.2e12),
}


def transformer_flops(batch, context, width, layers, vocabulary):
    """Forward and backward: 6 for each weight of a product and token, and the causal half of the attention."""
    weights = layers * 12 * width * width + vocabulary * width
    tokens = batch * context
    return 6 * weights * tokens + 6 * layers * width * context * tokens


FLOPS = {
    "mlp": 6 * (64 * 256 + 256 * 256 + 256) * BATCH["mlp"],
    "cnn": 6 * BATCH["cnn"] * (27 * 32 * 784 + 288 * 64 * 196 + 3136 * 128 + 1280),
    "transformer": transformer_flops(16, 128, 128, 2, 256),
    "lstm": 6 * 64 * 32 * (8 * 128 * 128 + 128 * 256),
    "gpt2": transformer_flops(8, 1024, 768, 12, 50257),
}


class Bench:
    def __init__(self, given):
        self.given = given
        self.end = time.monotonic() + given.seconds
        self.lines, self.failed, self.probes = [], False, {}

    def say(self, **line):
        self.lines.append(line)
        self.failed |= line.get("pass") is False
        print(json.dumps(line), flush=True)

    def program(self, name):
        path = os.path.join(self.given.programs, name)
        if os.access(path, os.X_OK):
            return path
        self.say(check=name, skipped=f"{path} is missing")
        return None

    def run(self, what, command, most=300, **options):
        """The finished process; None if there is no time for it, or it took too long."""
        left = self.end - time.monotonic()
        if left < 5:
            self.say(**what, skipped="no time is left")
            return None
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=min(most, left), **options)
        except subprocess.TimeoutExpired:
            self.say(**what, skipped=f"it took more than {min(most, left):.0f} s")
            return None


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def tail(process):
    return (process.stderr or process.stdout)[-400:]


def gpu_name():
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def check_models(bench):
    program = bench.program("trainer_tests")
    if program is None:
        return
    what = {"check": "models_beside_the_processor"}
    process = bench.run(what, [program, "gpu", "--nocapture"], 180)
    if process is not None:
        compared = "not compared with a GPU" not in process.stdout + process.stderr
        good = process.returncode == 0 and compared
        bench.say(**what, **{"pass": good}, **({} if good else {"output": tail(process)}))


def check_feed(bench):
    """Copies of batches to the device: the tests of them, also under compute-sanitizer."""
    program = bench.program("trainer_tests")
    if program is None:
        return
    what = {"check": "device_feed"}
    process = bench.run(what, [program, "device_feed"], 60)
    if process is not None:
        good = process.returncode == 0
        bench.say(**what, **{"pass": good}, **({} if good else {"output": tail(process)}))
    if bench.given.device != "cuda":
        return
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(sanitizer, os.X_OK):
        bench.say(check="compute_sanitizer", skipped="it is not installed")
        return
    for tool in ("memcheck", "initcheck"):
        what = {"check": "compute_sanitizer", "tool": tool}
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", program, "device_feed", "--skip", "fault_30"]
        process = bench.run(what, command, 60)
        if process is not None:
            bench.say(**what, **{"pass": process.returncode == 0})


def check_small_memlock(bench, command):
    """The same training where the system locks next to no memory: it is slower, and no batch is lost."""
    def limit():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (LOCKED_BYTES, LOCKED_BYTES))

    what = {"check": "small_memlock"}
    process = bench.run(what, command, 60, preexec_fn=limit)
    if process is not None:
        good = process.returncode == 0
        figures = last_json(process.stdout) if good else {"output": tail(process)}
        bench.say(**what, **{"pass": good}, **{key: figures[key] for key in ("copy_bytes_per_s", "output") if key in figures})


def probe_rate(bench, size):
    """Bytes per second of plain copies of so many bytes to the GPU, from page-locked memory; None where there is none."""
    key = int(size)
    if bench.given.device != "cuda" or not bench.given.peer:
        return None
    if key not in bench.probes:
        command = [sys.executable, os.path.join(bench.given.programs, "probe_copies.py"), str(key)]
        process = bench.run({"check": "probe_copies", "copy_bytes": key}, command, 60)
        figures = last_json(process.stdout) if process is not None and process.returncode == 0 else None
        if process is not None and figures is None:
            bench.say(check="probe_copies", copy_bytes=key, **{"pass": False}, output=tail(process))
        bench.probes[key] = figures and figures["probe_bytes_per_s"]
    return bench.probes[key]


def train(bench, case, folder, precision, peak):
    """One line for each that trains the case."""
    given = bench.given
    what = {"case": case, "precision": precision}
    batch = str(given.batch or BATCH[case])
    runs = {}
    model = MODEL.get(case, case)
    steps = bench.program("steps")
    if steps is not None:
        runs["feedline"] = [steps, "run", model, "feedline", str(given.steps), batch, folder, given.device, precision]
    if given.peer and model == case:
        peer = [sys.executable, os.path.join(given.programs, "peer_torch.py"), case, folder, str(given.steps)]
        peer += ["--device", "cuda" if given.device == "cuda" else "cpu", "--precision", precision, "--batch", batch]
        runs["torch eager"] = peer
        runs["torch compile"] = [*peer, "--compile"]
    rates = {}
    for who, command in runs.items():
        process = bench.run({**what, "who": who}, command)
        if process is None:
            continue
        figures = last_json(process.stdout) if process.returncode == 0 else None
        if figures is None:
            bench.say(**what, who=who, **{"pass": False}, output=tail(process))
            continue
        rates[who] = figures["steps_per_s"]
        if figures.get("copy_bytes"):
            figures["probe_bytes_per_s"] = probe_rate(bench, figures["copy_bytes"])
        if peak and case in FLOPS and not given.batch:
            figures["share_of_peak"] = figures["steps_per_s"] * FLOPS[case] / peak
        bench.say(**what, who=who, **figures)
    if "feedline" in rates:
        for who in rates.keys() - {"feedline"}:
            bench.say(**what, check=f"feedline beside {who}", ratio=rates["feedline"] / rates[who])


def table(lines):
    rows = [line for line in lines if "steps_per_s" in line]
    if not rows:
        return
    print(
        f"\n{'case':12} {'precision':9} {'who':14} {'steps/s':>9} {'ms CPU/step':>12} {'wait':>7} {'ms wait/step':>13} "
        f"{'copies GB/s':>12} {'probe GB/s':>11} {'of peak':>8} {'loss':>9}"
    )
    for row in rows:
        print(
            f"{row['case']:12} {row['precision']:9} {row['who']:14} {row['steps_per_s']:9.2f} {row['cpu_ms_per_step']:12.2f} "
            f"{cell(row, 'data_wait_share', '.2%'):>7} {cell(row, 'data_wait_ms_per_step', '.3f'):>13} "
            f"{cell(row, 'copy_bytes_per_s', '.3f', 1e9):>12} {cell(row, 'probe_bytes_per_s', '.3f', 1e9):>11} "
            f"{cell(row, 'share_of_peak', '.1%'):>8} {row['loss_last']:9.4f}"
        )


def cell(row, key, form, unit=1):
    value = row.get(key)
    return "" if value is None else format(value / unit, form)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "wgpu", "cpu"], default="cuda")
    parser.add_argument("--programs", default=HERE, help="folder of the programs; that of this script by default")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, help="samples of a batch, for a trial of this script")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--out", help="file of the JSON lines")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    given = parser.parse_args()
    cases = given.cases.split(",")
    unknown = sorted(set(cases) - set(CASES))
    if unknown or given.steps <= WARM:
        parser.error(f"no such case: {', '.join(unknown)}" if unknown else f"--steps must be over {WARM}")
    name = gpu_name()
    if given.device == "cuda" and name is None:
        print("no GPU: nvidia-smi names none")
        sys.exit(2)
    if given.peer and importlib.util.find_spec("torch") is None:
        print(json.dumps({"check": "peer", "skipped": "PyTorch is not installed"}))
        given.peer = False
    bench = Bench(given)
    bench.say(machine=name if given.device == "cuda" else given.device, cores=os.cpu_count())
    peaks = next((peaks for part, peaks in PEAKS.items() if part in (name or "")), None)
    if given.device != "cpu":
        check_models(bench)
        check_feed(bench)
    with tempfile.TemporaryDirectory() as folder:
        steps = bench.program("steps")
        for case in cases if steps else []:
            data = os.path.join(folder, case)
            os.mkdir(data)
            batch = str(given.batch or BATCH[case])
            model = MODEL.get(case, case)
            made = bench.run({"case": case}, [steps, "data", model, data, batch])
            if made is None:
                continue
            if made.returncode != 0:
                bench.say(case=case, **{"pass": False}, output=tail(made))
                continue
            for i, precision in enumerate(["f32", "bf16"] if given.device == "cuda" and case != "feed" else ["f32"]):
                train(bench, case, data, precision, peaks[i] if peaks and given.device == "cuda" else None)
            if given.device == "cuda" and case == "feed":
                command = [steps, "run", model, "feedline", str(WARM + 20), batch, data, given.device]
                check_small_memlock(bench, command)
            shutil.rmtree(data)
    table(bench.lines)
    if not any("pass" in line or "steps_per_s" in line for line in bench.lines):
        bench.say(check="anything", **{"pass": False}, output="nothing could be measured")
    if given.out:
        with open(given.out, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in bench.lines)
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
