"""Signals, threads and forks."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import feedline
from conftest import rows_of


def run(code, *arguments):
    """What a program of its own prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# A named pipe in the place of a shard, once its size was looked at: the loader opens it and waits, for ever, as it would for
# a dead server.
STUCK = """
import os, pathlib, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
import feedline
loader = feedline.Loader(sys.argv[1], 8)
for shard in pathlib.Path(sys.argv[1]).glob("shards/train/*.arrow"):
    shard.unlink()
    os.mkfifo(shard)
batches = iter(loader)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for _ in batches:
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""





@pytest.fixture
def stuck(dataset, tmp_path):
    import shutil

    return shutil.copytree(dataset, tmp_path / "copy")



def test_ctrl_c_works_while_waiting_for_a_batch(stuck):
    assert run(STUCK, stuck) == "interrupted"



def test_other_threads_run_while_one_waits(stuck):
    code = STUCK.replace("threading.Timer(0.3", "threading.Timer(0.1, print, ('ticked',)).start()\nthreading.Timer(0.3")
    assert run(code, stuck).split() == ["ticked", "interrupted"]


def test_threads_may_share_an_iteration(dataset):
    iterator, seen, lock = iter(feedline.Loader(dataset, 8, slabs=8)), [], threading.Lock()

    def work():
        for batch in iterator:
            rows = rows_of([batch])
            with lock:
                seen.extend(rows)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1_000))


def test_a_forked_child_is_told(dataset):
    code = """
import gc, os, sys, warnings
import feedline
warnings.simplefilter("ignore")
loader = feedline.Loader(sys.argv[1], 8)
batches = iter(loader)
next(batches)
child = os.fork()
if child == 0:
    for use in (lambda: next(batches), lambda: iter(loader)):
        try:
            use()
        except feedline.ForkError as error:
            print(error, flush=True)
    del batches, loader, use
    gc.collect()
    own = feedline.Loader(sys.argv[1], 8)
    print(sum(1 for _ in own), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(sum(1 for _ in batches))
"""
    *texts, child, parent = run(code, dataset).splitlines()
    assert len(texts) == 2 and all("open the loader after the fork" in text for text in texts)
    assert (child, parent) == ("125", "124")
