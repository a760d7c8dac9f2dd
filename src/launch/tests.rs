//! The launcher, with ranks that are shell scripts.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use feedline_schemas::{config::ParallelConfig, report::TrainReport};
use feedline_storage::clock::{Clock, SystemClock};

use super::{RankError, RankLaunch, protocol::ReportedFailure};

/// 4 s, by the clock that they have here.
const SILENCE_S: u64 = 16;

/// A clock that advances by 200 ms on each reading, for tests that wait for ranks in vain. Messages
/// of ranks make it faster, so nothing else may depend on it.
#[derive(Debug, Default)]
struct Fast(AtomicU64);

impl Clock for Fast {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(200 * self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn unix(&self) -> Duration {
        Duration::ZERO
    }
}

/// Messages and actions of ranks, for a script. They `meet` in the folder `at`.
fn rank_script(at: &Path) -> String {
    let report = TrainReport {
        steps: 7,
        ..TrainReport::default()
    };
    let report = serde_json::to_string(&report).unwrap();
    let failed = |message: &str, code, [interrupted, saved, may_pass]: [bool; 3], other: &str| {
        let fields = format!(
            r#""message":"{message}","code":{code},"interrupted":{interrupted},"names_checkpoint":{saved}"#
        );
        format!(r#"echo '{{"failed":{{{fields},"may_pass":{may_pass},"other":{other}}}}}'"#)
    };
    format!(
        r#"
done_() {{ echo '{{"done":{report}}}'; }}
at() {{ echo '{{"heartbeat":{{"step":'$1',"phase":"computing","exchange":9,"saved":'$2'}}}}'; }}
late() {{ {late}; }}
disk() {{ {disk}; }}
key() {{ {key}; }}
stopped() {{ {stopped}; }}
saved() {{ {saved}; }}
meet() {{ : >"{at}/$RANK"; until [ $(ls "{at}" | wc -l) = $WORLD_SIZE ]; do sleep 0.01; done; }}
echo 'output of a library'
"#,
        at = at.display(),
        late = failed(
            "rank 1 failed",
            1,
            [false, false, true],
            r#"[1,"waited for it"]"#
        ),
        disk = failed("the disk is full", 1, [false, false, true], "null"),
        key = failed("cannot use `train.x`", 2, [false; 3], "null"),
        stopped = failed("interrupted", 1, [true, false, false], "null"),
        saved = failed("resume from it", 1, [true, true, false], "null"),
    )
}

/// Result of `ranks` scripts, and the exit code.
fn launch(ranks: usize, restarts: u64, script: &str) -> (Result<TrainReport, String>, u8) {
    launch_by(
        &SystemClock,
        &AtomicBool::new(false),
        ranks,
        restarts,
        script,
    )
}

fn launch_by(
    clock: &dyn Clock,
    stop: &AtomicBool,
    ranks: usize,
    restarts: u64,
    script: &str,
) -> (Result<TrainReport, String>, u8) {
    let folder = tempfile::tempdir().unwrap();
    let functions = rank_script(folder.path());
    let launch = RankLaunch {
        program: "/bin/sh".into(),
        ranks,
        arguments: vec!["-c".into(), format!("{functions}{script}").into()],
        parallel: ParallelConfig {
            restarts,
            heartbeat_timeout_s: SILENCE_S,
            ..ParallelConfig::default()
        },
        prolongs: false,
        advice: " with `--resume`",
    };
    match launch.carry_out(false, 1, stop, clock) {
        Ok(report) => (Ok(report), 0),
        Err(error) => {
            let code = error.downcast_ref::<RankError>().unwrap().code;
            (Err(error.to_string()), code)
        }
    }
}

fn failed(clock: &dyn Clock, ranks: usize, script: &str) -> String {
    let (result, code) = launch_by(clock, &AtomicBool::new(false), ranks, 0, script);
    assert_eq!(code, 1);
    result.unwrap_err()
}

#[test]
fn the_report_is_that_of_the_first_rank() {
    let script = "at 1 0; if [ $RANK = 0 ]; then done_; else sed 1q >/dev/null; fi";
    // The others do not end by themselves.
    let (report, code) = launch_by(&Fast::default(), &AtomicBool::new(false), 3, 0, script);
    assert_eq!((report.unwrap().steps, code), (7, 0));
}

#[test]
fn a_killed_rank_is_named_with_where_all_were() {
    let error = failed(
        &SystemClock,
        2,
        "at 5 0; meet; [ $RANK = 1 ] && kill -9 $$; late",
    );
    let expected = "rank `1` failed: it was killed by signal 9; last known: rank 0 at step 5, computing, exchange 9; rank 1 at \
                    step 5, computing, exchange 9; not started again: `train.parallel.restarts` is 0; resume from the \
                    newest checkpoint with `--resume`";
    assert_eq!(error, expected);
    let error = failed(
        &SystemClock,
        2,
        "at 5 0; meet; [ $RANK = 1 ] && exit 101; late",
    );
    assert!(
        error.contains("rank `1` failed: it ended with exit code 101 and gave"),
        "{error}"
    );
}

#[test]
fn a_silent_rank_is_named() {
    let error = failed(
        &Fast::default(),
        2,
        "while at 5 0; do [ $RANK = 1 ] && kill -STOP $$; sleep 0.02; done",
    );
    assert!(
        error.contains("rank `1` failed: it has given no sign of life for 16 s"),
        "{error}"
    );
}

#[test]
fn a_rank_that_hangs_and_shows_life_is_named_by_the_others() {
    let error = failed(
        &Fast::default(),
        2,
        "at 5 0; [ $RANK = 0 ] && late || while at 5 0; do sleep 0.02; done",
    );
    assert!(error.contains("rank `1` failed: waited for it"), "{error}");
}

#[test]
fn a_reason_of_its_own_counts_more_than_what_others_say() {
    let error = failed(
        &SystemClock,
        3,
        "at 5 0; meet; [ $RANK = 2 ] && disk || late",
    );
    assert!(
        error.contains("rank `2` failed: the disk is full; last known"),
        "{error}"
    );
}

#[test]
fn what_another_start_would_not_help_is_said_as_it_is() {
    let (error, code) = launch(3, 9, "[ $RANK = 2 ] && key || sed 1q >/dev/null");
    assert_eq!(
        (error.unwrap_err().as_str(), code),
        ("cannot use `train.x`", 2)
    );
}

#[test]
fn ranks_that_failed_go_on_from_their_checkpoint() {
    let script = "at 5 0; if [ $0 = --resume ]; then done_; else kill -9 $$; fi";
    assert_eq!(launch(2, 1, script).0.unwrap().steps, 7);
    // A fresh start that had not begun stays one.
    let (error, code) = launch(
        2,
        9,
        "if [ $0 = --resume ]; then done_; else kill -9 $$; fi",
    );
    let error = error.unwrap_err();
    assert!(error.contains("second time in a row at step 0"), "{error}");
    assert_eq!(code, 1);
}

#[test]
fn a_stop_is_passed_on_and_the_first_rank_may_take_its_time() {
    let stop = AtomicBool::new(true);
    let script = "at 5 0; dd bs=1 count=1 2>/dev/null >/dev/null; [ $RANK = 0 ] && \
                  for i in 1 2 3 4 5 6 7 8 9; do at 5 0; sleep 0.05; done; stopped";
    let (error, code) = launch_by(&Fast::default(), &stop, 3, 9, script);
    assert_eq!((error.unwrap_err().as_str(), code), ("interrupted", 1));
    // A rank that fails during a stop is not restarted.
    let (error, _) = launch_by(&Fast::default(), &stop, 2, 9, "at 5 0; kill -9 $$");
    assert!(
        error
            .unwrap_err()
            .contains("not started again: it was asked to stop")
    );
}

#[test]
fn a_stop_that_saved_a_checkpoint_ends_with_the_way_to_resume() {
    let stop = AtomicBool::new(true);
    let script = "at 5 0; dd bs=1 count=1 2>/dev/null >/dev/null; saved";
    let (error, code) = launch_by(&Fast::default(), &stop, 2, 9, script);
    let expected = "resume from it with `--resume`";
    assert_eq!((error.unwrap_err().as_str(), code), (expected, 1));
}

#[test]
fn a_failed_rank_says_if_its_message_ends_with_a_checkpoint() {
    let interrupted = feedline_trainer::Error::Interrupted {
        checkpoint: "a".to_owned(),
    };
    let busy = feedline_trainer::Error::Busy {
        url: "a.safetensors".to_owned(),
    };
    let names =
        |error: feedline_trainer::Error| ReportedFailure::new(&error.into()).names_checkpoint;
    assert!(names(interrupted));
    assert!(!names(busy));
}

#[test]
fn far_more_ranks_than_processors_are_refused() {
    for (ranks, processors, is_fine) in [(1, 1, true), (4, 2, true), (16, 2, true), (17, 2, false)]
    {
        let found = super::check_ranks(ranks, processors);
        assert_eq!(found.is_ok(), is_fine, "{ranks} {processors}");
    }
    let said = super::check_ranks(100, 2).unwrap_err().to_string();
    assert!(said.contains("start at most 2"), "{said}");
}
