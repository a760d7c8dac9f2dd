//! Tracking of a run while it is in progress and when it ends.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
    thread,
};

use feedline_schemas::{
    Classified as _, ErrorKind,
    config::TrainConfig,
    decode,
    progress::{Event, Progress},
    run::{RunRecord, RunState},
};
use feedline_storage::Store;
use feedline_testkit::free_port::free_port;
use feedline_trainer::{Context, Group, Resume, train};

use crate::{
    dataset::Kind,
    runs::{StopAt, contents, context},
};

fn config() -> TrainConfig {
    TrainConfig {
        batch_size: 64,
        epochs: 3,
        log_every: 2,
        ..TrainConfig::default()
    }
}

/// The record of the only run.
fn record(store: &Store) -> RunRecord {
    let files = contents(store);
    let mut records = files.iter().filter(|(path, _)| path.ends_with("/run.json"));
    let (path, bytes) = records.next().unwrap();
    assert!(records.next().is_none());
    decode(path, bytes).unwrap()
}

fn page(store: &Store) -> String {
    let files: BTreeMap<_, _> = contents(store);
    let (_, bytes) = files
        .iter()
        .find(|(path, _)| path.ends_with("/report.html"))
        .unwrap();
    String::from_utf8(bytes.clone()).unwrap()
}

#[test]
fn the_record_says_how_a_run_stands_and_how_it_ended() {
    let base = context(Kind::Regression);
    let stop = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(StopAt {
        steps: vec![7],
        stop: Arc::clone(&stop),
        seen: AtomicU64::new(0),
    });
    let stopping = Context {
        progress,
        stop,
        ..base.clone()
    };
    let error = train(&config(), Resume::Fresh, &stopping).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let interrupted = record(&base.runs);
    assert_eq!(
        (interrupted.state, interrupted.step, interrupted.epochs),
        (RunState::Interrupted, 7, 1)
    );
    assert!(interrupted.test.is_empty() && interrupted.best.is_some());
    assert!(page(&base.runs).contains("interrupted"));

    let refused = train(&config(), Resume::Fresh, &base).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert_eq!(
        record(&base.runs),
        interrupted,
        "a start that was refused reports nothing of the run"
    );

    let report = train(&config(), Resume::Continue, &base).unwrap();
    let finished = record(&base.runs);
    assert_eq!(
        (finished.state, finished.step),
        (RunState::Finished, report.steps)
    );
    assert_eq!(
        (finished.started_ms, &finished.test),
        (interrupted.started_ms, &report.test)
    );
    assert_eq!(finished.steps_planned, report.steps);
    assert_eq!(finished.parameters, report.parameters);
    assert_eq!(finished.best.unwrap().metrics, report.validation);
    assert!(page(&base.runs).contains("From the curves"));
    assert!(report.report.ends_with("/report.html"));
}

#[test]
fn a_run_that_fails_says_why() {
    let base = context(Kind::Regression);
    let mut config = config();
    (config.learning_rate, config.clip_norm) = (1e30, 0.0);
    let error = train(&config, Resume::Fresh, &base).unwrap_err();
    let failed = record(&base.runs);
    assert_eq!(failed.state, RunState::Failed);
    assert_eq!(failed.reason, Some(error.to_string()));
    assert!(page(&base.runs).contains("Why it failed"));
}

/// Asks for the numbers of the run when it has taken this step.
#[derive(Debug)]
struct AskAt {
    step: u64,
    address: SocketAddr,
    answer: Mutex<String>,
}

impl Progress for AskAt {
    fn report(&self, event: Event<'_>) {
        if event.stage == "train" && event.done == self.step {
            let mut stream = TcpStream::connect(self.address).unwrap();
            let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            stream
                .read_to_string(&mut self.answer.lock().unwrap())
                .unwrap();
        }
    }
}

#[test]
fn the_numbers_of_a_running_training_are_served_and_a_taken_port_is_refused_before_it_starts() {
    let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
    let address = listener.local_addr().unwrap();
    let config = TrainConfig {
        metrics_listen: Some(address.to_string()),
        ..config()
    };
    let base = context(Kind::Regression);
    let error = train(&config, Resume::Fresh, &base).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("`train.metrics_listen`"),
        "{error}"
    );
    assert!(contents(&base.runs).is_empty());
    drop(listener);

    let ask = Arc::new(AskAt {
        step: 9,
        address,
        answer: Mutex::default(),
    });
    let progress = Arc::clone(&ask) as Arc<dyn Progress>;
    train(&config, Resume::Fresh, &Context { progress, ..base }).unwrap();
    let answer = ask.answer.lock().unwrap();
    for line in [
        "feedline_train_step 9\n",
        "feedline_train_epochs 1\n",
        "feedline_train_checkpoints_total 1\n",
        "feedline_train_skipped_steps_total 0\n",
        "feedline_train_rollbacks_total 0\n",
        "feedline_train_validation{metric=\"rmse\"} ",
        "feedline_train_learning_rate ",
        "feedline_train_samples_per_second ",
    ] {
        assert!(answer.contains(&format!("\n{line}")), "{line}: {answer}");
    }
    assert!(
        TcpStream::connect(address).is_err(),
        "the page is gone with the run"
    );
}

#[test]
fn all_ranks_report_why_the_first_one_could_not_begin() {
    let taken = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
    let config = &TrainConfig {
        metrics_listen: Some(taken.local_addr().unwrap().to_string()),
        ..config()
    };
    let base = &context(Kind::Regression);
    let errors: Vec<String> = thread::scope(|scope| {
        let on_one = |group| {
            scope.spawn(move || {
                let context = Context {
                    group,
                    ..base.clone()
                };
                let error = train(config, Resume::Fresh, &context).unwrap_err();
                error.to_string()
            })
        };
        let threads: Vec<_> = Group::threads(2).into_iter().map(on_one).collect();
        let threads = threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors {
        assert!(
            error.contains("cannot use `train.metrics_listen`"),
            "{error}"
        );
    }
}
