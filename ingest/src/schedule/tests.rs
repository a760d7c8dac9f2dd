use std::{fs, path::Path, time::Duration};

use feedline_schemas::{
    config::load,
    ids::Name,
    lease::{LastRun, LeaseEntry, RunOutcome},
};
use feedline_storage::{
    Effect, Faults, Operation, Rule, Store,
    clock::{Clock as _, SystemClock},
};
use tokio::sync::watch;

use super::{
    lease::{Lease, Taken},
    runner::Past,
    *,
};
use crate::{commit_log::landed, testing};

/// A pipeline that reads the files of a folder with the schedule `schedule`.
fn pipeline(folder: &Path, schedule: &str) -> PipelineConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}/*.csv\"\nschedule = {schedule}\n",
        folder.display()
    );
    load("p.toml", &text, &[]).unwrap().config
}

/// A served pipeline, and the sender that stops it.
struct Running {
    board: Arc<ScheduleStatus>,
    root: Store,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

fn start(config: &PipelineConfig, root: &Store, run_id: &str) -> Running {
    let (stop, cancel) = watch::channel(false);
    let context = Context {
        root: root.clone(),
        clock: Arc::new(SystemClock),
        run_id: run_id.into(),
        cancel,
        ..testing::context()
    };
    let mut scheduler = Scheduler::new(1);
    scheduler.add(config.clone(), &context).unwrap();
    let board = scheduler.board();
    let task = tokio::spawn(scheduler.run());
    Running {
        board,
        root: root.clone(),
        stop,
        task,
    }
}

impl Running {
    /// Waits until the board shows it.
    async fn until(&self, is_so: impl Fn(&ServedSource) -> bool) -> ServedSource {
        for _ in 0..6_000 {
            if let Some(served) = self.board.read().into_iter().find(|served| is_so(served)) {
                return served;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{:?}", self.board.read());
    }

    async fn rows(&self) -> u64 {
        let name = Name::new("s").unwrap();
        let landed = landed(&self.root, &name).await.unwrap();
        landed.map_or(0, |landed| landed.entries.last().unwrap().state.totals.rows)
    }

    async fn end(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap();
    }
}

fn complete(served: &ServedSource) -> u64 {
    served.runs.get(&RunOutcome::Complete).copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_new_lands_at_the_next_time_and_a_stop_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("1.csv"), "a\n1\n").unwrap();
    let running = start(
        &pipeline(folder.path(), "{ every_s = 1 }"),
        &Store::memory(),
        "x",
    );
    running.until(|served| complete(served) >= 1).await;
    assert_eq!(running.rows().await, 1);
    fs::write(folder.path().join("2.csv"), "a\n2\n3\n").unwrap();
    let runs = complete(&running.board.read()[0]);
    let served = running.until(|served| complete(served) >= runs + 2).await;
    assert_eq!(running.rows().await, 3);
    assert_eq!(served.report.unwrap().rows, 3);
    assert!(served.complete_unix_s.is_some() && served.next_unix_s.is_some());
    let root = running.root.clone();
    running.end().await;
    let [lease] = &root.child("landing/s").list("lease").await.unwrap()[..] else {
        panic!("one lease object stays");
    };
    let bytes = root.child("landing/s").get(&lease.path).await.unwrap();
    let lease: LeaseEntry = feedline_schemas::decode("lease", &bytes).unwrap();
    assert!(!lease.held, "{lease:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_51_two_programs_run_a_source_once_each_time() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("1.csv"), "a\n1\n").unwrap();
    let config = pipeline(folder.path(), "{ every_s = 2 }");
    let root = Store::memory();
    let clock = SystemClock;
    let now = || i64::try_from(clock.unix().as_secs()).unwrap();
    let began = now();
    let (a, b) = (start(&config, &root, "a"), start(&config, &root, "b"));
    // A program that finds the lease held retries after a quarter of its lifetime.
    let due = |served: &ServedSource| served.last.as_ref().map_or(0, |last| last.due_unix_s);
    a.until(|served| due(served) >= began + 6).await;
    let runs = [&a, &b].map(|running| complete(&running.board.read()[0]));
    let runs: u64 = runs.iter().sum();
    // The run before the first tick, one every two seconds, and one that may be in progress. If
    // both programs had run each time, there would be twice as many.
    let most = u64::try_from((now() - began) / 2 + 2).unwrap();
    assert!((3..=most).contains(&runs), "{runs} runs, at most {most}");
    a.end().await;
    b.end().await;
    assert_eq!(
        landed(&root, &Name::new("s").unwrap())
            .await
            .unwrap()
            .unwrap()
            .entries
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_fails_is_told_and_tried_at_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("1.csv");
    fs::write(&file, [0xff, 0xfe, 0xff]).unwrap();
    let running = start(
        &pipeline(folder.path(), "{ every_s = 1 }"),
        &Store::memory(),
        "x",
    );
    let failed = |served: &ServedSource| served.runs.get(&RunOutcome::Failed).copied().unwrap_or(0);
    let served = running.until(|served| failed(served) >= 1).await;
    assert!(served.last.is_some_and(|last| last.reason.is_some()));
    fs::write(&file, "a\n1\n").unwrap();
    running.until(|served| complete(served) >= 1).await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_of_a_failed_run_has_a_mask_where_a_secret_was() {
    let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\n\
                url = \"http://127.0.0.1:9/secret-TOKEN/a.csv\"\nretry = { max_tries = 1 }\n\
                auth = { type = \"bearer\", secret = { env = \"TOKEN\" } }\nschedule = { every_s = 1 }\n";
    let config = load("p.toml", text, &[]).unwrap().config;
    let running = start(&config, &Store::memory(), "x");
    let reason = |served: &ServedSource| served.last.clone().and_then(|last| last.reason);
    let served = running.until(|served| reason(served).is_some()).await;
    let reason = reason(&served).unwrap();
    assert!(reason.contains("127.0.0.1:9/***/a.csv`"), "{reason}");
    assert!(!reason.contains("secret-TOKEN"), "{reason}");
    running.end().await;
}

fn ticks() -> DueTimes {
    DueTimes::Every(100)
}

fn ended(due_unix_s: i64, outcome: RunOutcome, until_unix_s: Option<i64>) -> LastRun {
    LastRun {
        due_unix_s,
        began_unix_s: due_unix_s,
        ended_unix_s: due_unix_s + 30,
        outcome,
        reason: None,
        failures: 0,
        until_unix_s,
    }
}

/// Next due time and earliest start, for a program that starts at `now` after this last run.
fn next(last: Option<LastRun>, catch_up: bool, now: i64) -> (i64, i64) {
    let past = Past::at_start(last.as_ref(), &ticks(), catch_up, now).unwrap();
    past.next(&ticks(), now).unwrap().unwrap()
}

#[test]
fn fault_51_times_that_were_missed_are_made_up_for_once() {
    let complete = |due| Some(ended(due, RunOutcome::Complete, None));
    assert_eq!(
        next(None, true, 1_050),
        (1_000, 1_000),
        "never run: at once"
    );
    assert_eq!(next(None, false, 1_050), (1_100, 1_100));
    assert_eq!(
        next(complete(500), true, 1_050),
        (1_000, 1_000),
        "one for five"
    );
    assert_eq!(next(complete(500), false, 1_050), (1_100, 1_100));
    assert_eq!(
        next(complete(1_000), true, 1_050),
        (1_100, 1_100),
        "none is missed"
    );
    let stopped = Some(ended(1_000, RunOutcome::Stopped, None));
    assert_eq!(
        next(stopped, true, 1_050),
        (1_000, 1_000),
        "it is still due"
    );
}

#[test]
fn fault_52_a_clock_that_goes_back_runs_nothing_twice_and_waits_for_no_wrong_year() {
    let complete = |due| Some(ended(due, RunOutcome::Complete, None));
    assert_eq!(next(complete(1_500), true, 1_400), (1_600, 1_600));
    // More than a period ahead: the clock was wrong.
    assert_eq!(next(complete(5_000), true, 1_400), (1_500, 1_500));
    let year = 31_536_000;
    assert_eq!(next(complete(year), true, 1_450), (1_500, 1_500));
}

#[test]
fn a_deferred_run_goes_on_when_its_server_allows() {
    let deferred = |until| Some(ended(1_000, RunOutcome::Deferred, Some(until)));
    assert_eq!(
        next(deferred(1_060), true, 1_031),
        (1_000, 1_060),
        "before the next time"
    );
    assert_eq!(
        next(deferred(1_350), true, 1_031),
        (1_100, 1_350),
        "a later one, but not before"
    );
    assert_eq!(
        next(deferred(1_060), true, 1_180),
        (1_000, 1_060),
        "late, and so one run for both"
    );
}

#[test]
fn a_deferral_by_a_clock_that_was_ahead_lasts_no_longer_than_was_asked() {
    let year = 31_536_000;
    let last = ended(year, RunOutcome::Deferred, Some(year + 30 + 7_200));
    let (due, from) = next(Some(last), true, 1_031);
    assert!(from <= 1_031 + 7_200, "{due} {from}");
}

#[test]
fn schedules_that_cannot_be_are_named_before_anything_runs() {
    let check = |schedule: &str, part: &str| {
        let config = pipeline(Path::new("x"), schedule);
        let error = Scheduler::new(1)
            .add(config, &testing::context())
            .unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    check("{ cron = \"* *\" }", "`source.0.schedule.cron`");
    let mut scheduler = Scheduler::new(1);
    let config = pipeline(Path::new("x"), "{ every_s = 1 }");
    let added = scheduler.add(config.clone(), &testing::context());
    added.unwrap();
    let again = scheduler.add(config, &testing::context()).unwrap_err();
    let part = "`pipeline.name`: `p` is served already";
    assert!(again.to_string().contains(part), "{again}");
    let mut config = pipeline(Path::new("x"), "{ every_s = 1 }");
    config.source[0].schedule = None;
    let error = Scheduler::new(1)
        .add(config, &testing::context())
        .unwrap_err();
    assert!(error.to_string().contains("nothing to serve"), "{error}");
}

/// A period whose end no test runs into, in seconds.
const RARELY_S: i64 = 10_000_000;

/// A source of one file in `folder`, its context, and the time when it was due last.
fn due_line(folder: &Path) -> (SourceRunner, Context, i64) {
    fs::write(folder.join("1.csv"), "a\n1\n").unwrap();
    let context = Context {
        clock: Arc::new(SystemClock),
        run_id: "b".into(),
        ..testing::context()
    };
    let mut scheduler = Scheduler::new(1);
    let config = pipeline(folder, &format!("{{ every_s = {RARELY_S} }}"));
    scheduler.add(config, &context).unwrap();
    let now = i64::try_from(context.clock.unix().as_secs()).unwrap();
    let due = DueTimes::Every(RARELY_S).until(now).unwrap().unwrap();
    (scheduler.runners.remove(0), context, due)
}

#[tokio::test]
async fn what_another_program_has_just_run_is_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let (line, context, due) = due_line(folder.path());
    let landing = crate::landing_folder::landing(&context.root, &line.source);
    let ttl = Duration::from_secs(60);
    let lease = |holder| Lease::new(landing.clone(), &line.source, holder, ttl, &context.clock);
    let mut other = lease("a");
    assert_eq!(other.take().await.unwrap(), Taken::Ours);
    let last = ended(due, RunOutcome::Complete, None);
    other.give_back(last).await.unwrap();
    line.board.update(0, |served| served.store_failures = 2);
    // State of this program before: the run is due.
    let mut past = Some(Past {
        handled: Some(due - RARELY_S),
        resumes: None,
    });
    let (mut ours, mut runs) = (lease("b"), 0);
    assert!(line.turn(&mut ours, &mut past, &mut runs).await.unwrap());
    assert_eq!((runs, past.unwrap().handled), (0, Some(due)));
    assert_eq!(line.board.read()[0].failures(), 0, "the store works again");
}

#[tokio::test]
async fn a_run_of_a_clock_that_was_ahead_does_not_count_as_the_run_that_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let (line, context, due) = due_line(folder.path());
    let landing = crate::landing_folder::landing(&context.root, &line.source);
    let ttl = Duration::from_secs(60);
    let mut lease = Lease::new(landing, &line.source, "b", ttl, &context.clock);
    assert_eq!(lease.take().await.unwrap(), Taken::Ours);
    let ahead = ended(due + 9 * RARELY_S, RunOutcome::Complete, None);
    lease.give_back(ahead).await.unwrap();
    let mut past = Some(Past {
        handled: Some(due - RARELY_S),
        resumes: None,
    });
    let mut runs = 0;
    assert!(line.turn(&mut lease, &mut past, &mut runs).await.unwrap());
    assert_eq!((runs, complete(&line.board.read()[0])), (1, 1));
    let handled = past.unwrap().handled.unwrap();
    assert!((due..=due + RARELY_S).contains(&handled), "{handled}");
}

#[tokio::test(start_paused = true)]
async fn a_source_whose_store_cannot_be_used_is_a_failing_one() {
    let folder = tempfile::tempdir().unwrap();
    let rule = Rule {
        operation: Operation::Create,
        path_contains: "lease/".into(),
        skip: 0,
        times: 1_000,
        effect: Effect::FailBefore,
    };
    let root = Store::memory().with_faults(Faults::new(vec![rule]));
    let config = pipeline(folder.path(), "{ every_s = 1 }");
    let running = start(&config, &root, "x");
    let served = running.until(|served| served.failures() >= 1).await;
    let error = served.store_error.unwrap();
    assert!(error.contains("injected fault"), "{error}");
    assert!(served.runs[&RunOutcome::Failed] >= 1, "{:?}", served.runs);
    running.end().await;
}
