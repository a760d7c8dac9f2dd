//! Ranks that PyTorch's `torchrun` starts, by each of its four ways to meet.

use feedline_testkit::free_port::free_port;

use crate::{
    ranks::{assert_same, forget, prepared, weights},
    support::{finish, python_with_torch, run},
};

#[test]
fn two_ranks_meet_by_each_of_the_four_ways_of_torchrun_and_end_with_the_bytes_of_one() {
    if python_with_torch().is_none() {
        return;
    }
    let (folder, file) = prepared();
    let folder = folder.path();
    run(folder, &["train", file]).expect(0);
    let expected = weights(folder);
    let port = format!("--master-port={}", free_port());
    let ways: [&[&str]; 4] = [
        &[],
        &["--standalone"],
        &["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"],
        &[&port],
    ];
    for way in ways {
        forget(folder);
        let mut torchrun = python_with_torch().unwrap();
        torchrun.args(["-m", "torch.distributed.run", "--nproc-per-node=2"]);
        torchrun.args(way).arg("--no-python");
        torchrun.arg(env!("CARGO_BIN_EXE_feedline"));
        torchrun.args(["train", file]).current_dir(folder);
        finish(torchrun.output().unwrap()).expect(0);
        assert_same(folder, &expected, &way.join(" "));
    }
}
