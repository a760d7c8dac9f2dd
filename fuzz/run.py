#!/usr/bin/env python3
"""Builds the fuzz targets with the stable toolchain, and runs each for its CPU time.

    python3 fuzz/run.py [--cpu-seconds 1200] [--jobs 2] [--work FOLDER] [TARGET...]

The targets are built in a copy of the tree in which they are members of the workspace, with the
features and profiles of the tests. So the build of the tests provides the dependencies, and only
feedline's own crates are built again, with counters of coverage (about 8 minutes on 2 cores;
`cargo fuzz` builds all dependencies, for hours).

FOLDER (default: `fuzz-work` in the folder for temporary files) keeps the corpus of each target, its
log, the inputs that ended it in `found/`, and the CPU time so far in `cpu.json`: another call
continues, and skips targets that have had their time. A target that is ended by a finding is not run
again before it is built again. Targets with the least CPU time run first.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
FEATURES = "mpi,cluster,wgpu"
COVERAGE = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
]
# Greatest length of an input in bytes, where 8 KiB are few.
LENGTHS = {"document": 65_536, "checkpoint": 65_536}


def targets():
    return sorted(file.stem for file in (TREE / "fuzz/fuzz_targets").glob("*.rs"))


def copy_tree(copy):
    """Copies the tracked files, with `fuzz` as a member of the workspace."""
    copy.mkdir(parents=True, exist_ok=True)
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TREE, check=True, capture_output=True,
    ).stdout.decode().split("\0")
    for name in filter(None, files):
        source, target = TREE / name, copy / name
        if not source.is_file():
            continue
        content = source.read_bytes()
        # An unchanged file keeps its time, so that cargo does not build it again.
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(source, target)
    root = (TREE / "Cargo.toml").read_text()
    root = root.replace('"testkit"]', '"testkit", "fuzz"]').replace(', "fuzz"]\n\n', "]\n\n", 1)
    members = re.findall(r"^feedline-\w+(?= = \{ path)", root, re.MULTILINE)
    profiles = [f"[profile.dev.package.{name}]\nopt-level = 1\n" for name in members
                if f"[profile.dev.package.{name}]" not in root]
    write(copy / "Cargo.toml", root + "\n" + "".join(profiles))
    fuzz = (TREE / "fuzz/Cargo.toml").read_text()
    fuzz = fuzz[fuzz.index("[package]"):]
    fuzz = re.sub(r"(# [^\n]*\n)*\[patch.crates-io\]\n[^\[]*", "", fuzz)
    write(copy / "fuzz/Cargo.toml", fuzz)
    # A test among the targets of a build gives dependencies the features that tests need.
    write(copy / "fuzz/tests/features.rs", "")


def write(path, text):
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def build(work, names):
    copy = work / "tree"
    copy_tree(copy)
    wrapper = work / "rustc.py"
    write(wrapper, f"""#!/usr/bin/env python3
import os, sys
name = dict(zip(sys.argv, sys.argv[1:])).get("--crate-name", "")
# Scripts of builds, the empty test and cargo's questions to the compiler have no counters.
plain = name.startswith("build_script") or name in ("features", "___", "")
os.execvp(sys.argv[1], sys.argv[1:] + ([] if plain else ["--cfg", "fuzzing"] + {COVERAGE!r}))
""")
    wrapper.chmod(0o755)
    environment = dict(os.environ, RUSTC_WORKSPACE_WRAPPER=str(wrapper), CARGO_INCREMENTAL="0")
    command = ["cargo", "build", "--features", FEATURES, "--test", "features", "--message-format", "json"]
    for name in names:
        command += ["--bin", name]
    built = subprocess.run(command, cwd=copy, env=environment, stdout=subprocess.PIPE)
    programs = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-message" and message["message"]["level"] == "error":
            print(message["message"]["rendered"])
        if message.get("executable") and message["target"]["name"] in names:
            programs[message["target"]["name"]] = message["executable"]
    if built.returncode:
        raise SystemExit(built.returncode)
    (work / "bin").mkdir(exist_ok=True)
    for name, program in programs.items():
        shutil.copy2(program, work / "bin" / name)


def cpu_seconds(pid):
    """CPU time of a process; `None` once it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_end(file, size=65_536):
    """The last bytes of a log. All of it may be gigabytes of panics that were caught, and a process
    passes its peak of memory on to those that it starts, which libFuzzer compares with its limit."""
    with open(file, "rb") as log:
        log.seek(max(0, file.stat().st_size - size))
        return log.read().decode("utf-8", "replace")


class Runs:
    """CPU time, inputs and findings of each target, kept in a file."""

    def __init__(self, work, limit):
        self.work, self.limit, self.lock = work, limit, threading.Lock()
        self.file = work / "cpu.json"
        self.state = json.loads(self.file.read_text()) if self.file.is_file() else {}

    def cpu(self, name):
        return self.state.get(name, {}).get("cpu", 0.0)

    def run(self, name):
        folder = self.work / name
        corpus, found = folder / "corpus", folder / "found"
        for each in (corpus, found):
            each.mkdir(parents=True, exist_ok=True)
        left, used, last = self.limit - self.cpu(name), 0.0, 0.0
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                ["nice", "-n", "15", self.work / "bin" / name, corpus, TREE / "fuzz/corpus" / name,
                 f"-max_len={LENGTHS.get(name, 8_192)}", "-timeout=25", "-rss_limit_mb=3000",
                 "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={found}/"],
                stdout=log, stderr=log, cwd=folder,
            )
            before = self.cpu(name)
            while process.poll() is None:
                time.sleep(1)
                used = max(used, cpu_seconds(process.pid) or 0.0)
                if used >= left:
                    process.send_signal(signal.SIGINT)
                if used - last >= 10:
                    last = used
                    self.note(name, cpu=before + used)
        end = read_end(folder / "log").splitlines()
        units = [int(line.split()[-1]) for line in end if "number_of_executed_units" in line]
        with self.lock:
            earlier = self.state.get(name, {}).get("inputs", 0)
        findings = sorted(file.name for file in found.iterdir())
        self.note(name, cpu=before + used, inputs=earlier + sum(units), found=findings)
        print(f"{name}: {before + used:.0f} CPU seconds, {earlier + sum(units):,} inputs, {len(findings)} found",
              flush=True)

    def note(self, name, **what):
        with self.lock:
            self.state.setdefault(name, {}).update(what)
            temporary = self.file.with_suffix(".new")
            temporary.write_text(json.dumps(self.state, indent=1, sort_keys=True))
            temporary.replace(self.file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu-seconds", type=float, default=1_200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "fuzz-work")
    parser.add_argument("--no-build", action="store_true", help="run the programs of the last build")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    options = parser.parse_args()
    names = options.targets or targets()
    unknown = sorted(set(names) - set(targets()))
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(targets())}")
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if not options.no_build:
        build(work, names)
    runs = Runs(work, options.cpu_seconds)
    left = sorted((name for name in names if runs.cpu(name) < options.cpu_seconds), key=runs.cpu)

    def drain():
        while True:
            with runs.lock:
                if not left:
                    return
                name = left.pop(0)
            runs.run(name)

    threads = [threading.Thread(target=drain) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
