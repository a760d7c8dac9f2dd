//! Runs whose checkpoints are slow to write, or cannot be written.

use std::time::Duration;

use feedline_storage::{Effect, Faults, Operation, Rule};

use super::*;

/// A store whose writes of paths with this text in them meet a fault.
fn faulty(store: &Store, path: &str, skip: u64, times: u64, effect: Effect) -> Store {
    let rule = Rule {
        operation: Operation::Put,
        path_contains: path.into(),
        skip,
        times,
        effect,
    };
    store.with_faults(Faults::new(vec![rule]))
}

#[test]
fn a_checkpoint_that_fails_is_an_alarm_and_training_goes_on() {
    let (files, expected) = undisturbed(&config(), &regression(64));
    for effect in [Effect::FailBefore, Effect::Full] {
        let store = Store::memory();
        let broken = faulty(&store, "step-00000008", 0, 1, effect);
        let report = train(&config(), &regression(64), Resume::Fresh, &broken).unwrap();
        let (found, report) = finished(&store, report);
        assert_eq!(report, expected);
        let (path, bytes) = &found[found.len() - 1];
        assert_eq!(path, "metrics.jsonl");
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains(r#""kind":"save_failed""#), "{text}");
        let checkpoints: Vec<_> = found[..found.len() - 1]
            .iter()
            .map(|(path, bytes)| (path, bytes))
            .collect();
        let others = files.iter().map(|(path, bytes)| (path, bytes));
        let others = others
            .filter(|(path, _)| !path.contains("00000008") && path.as_str() != "metrics.jsonl");
        assert!(checkpoints == others.collect::<Vec<_>>());
    }
}

#[test]
fn a_checkpoint_that_is_due_is_written_though_no_step_follows() {
    let store = Store::memory();
    let toy = regression(64).with_fault(Fault::DieAt(8));
    let error = train(&config(), &toy, Resume::Fresh, &store).unwrap_err();
    assert!(matches!(error, Error::Runtime(_)), "{error}");
    let newest = "checkpoints/step-00000008.safetensors";
    let found = contents(&store);
    let names: Vec<&String> = found.keys().collect();
    assert!(found.keys().any(|path| path.ends_with(newest)), "{names:?}");
}

#[test]
fn a_lost_last_checkpoint_is_tried_again_and_one_that_stays_lost_ends_the_run() {
    let (files, expected) = undisturbed(&config(), &regression(64));
    for path in ["step-00000012", "best.safetensors", "metrics.jsonl"] {
        let store = Store::memory();
        let broken = faulty(&store, path, 0, 2, Effect::FailBefore);
        let report = train(&config(), &regression(64), Resume::Fresh, &broken).unwrap();
        let (found, report) = finished(&store, report);
        assert_eq!(report, expected);
        let last = |files: &[(String, Vec<u8>)]| files[..files.len() - 1].to_vec();
        assert!(last(&found) == last(&files), "{path}");
    }
    let store = Store::memory();
    let broken = faulty(&store, "step-00000012", 0, 99, Effect::Full);
    let error = train(&config(), &regression(64), Resume::Fresh, &broken).unwrap_err();
    assert!(
        matches!(&error, Error::Storage(e) if e.is_full()),
        "{error}"
    );
    let report = train(&config(), &regression(64), Resume::Continue, &store).unwrap();
    let (found, report) = finished(&store, report);
    assert_eq!(report, expected);
    assert!(last(&found)[0] == last(&files)[0]);
}

#[test]
fn slow_writes_change_nothing_and_are_all_waited_for() {
    let mut config = config();
    (config.checkpoint.every_steps, config.checkpoint.keep) = (1, 99);
    let (expected, _) = undisturbed(&config, &regression(64));
    let slow = Effect::Delay(Duration::from_millis(20));
    let store = Store::memory();
    let broken = faulty(&store, "checkpoints/", 0, 99, slow);
    let report = train(&config, &regression(64), Resume::Fresh, &broken).unwrap();
    assert!(finished(&store, report).0 == expected);
}

#[test]
fn a_run_told_to_stop_leaves_a_folder_that_is_too_slow_and_names_what_is_saved() {
    let mut config = config();
    (config.checkpoint.every_steps, config.log_every) = (1, 1);
    let (expected_files, expected) = undisturbed(&config, &regression(64));
    for (stop, path, written) in [
        // The final save.
        (6, "step-00000006", 0),
        // A save under way, which the next waits for.
        (6, "checkpoints/", 4),
        // The first write of metrics in the background: of two later ones, the first may hold the lines of both.
        (2, "metrics.jsonl", 1),
        // The first save, which is waited for.
        (1, "step-00000001", 0),
    ] {
        let store = Store::memory();
        let never = Effect::Delay(Duration::from_secs(60));
        let slow = faulty(&store, path, written, 99, never);
        let mut toy = regression(64).with_fault(Fault::StopAt(stop - 1));
        toy.patience = Duration::from_secs(1);
        let error = train(&config, &toy, Resume::Fresh, &slow).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        let message = error.to_string();
        let files = contents(&store).into_keys();
        let kept = files.rev().find_map(|path| {
            let name = path.strip_prefix("checkpoints/step-")?;
            name.strip_suffix(".safetensors")?.parse::<u64>().ok()
        });
        assert_eq!(kept.is_none(), stop == 1, "{path}");
        // On a busy machine a write may end when the run has left, so that there is more than the message names.
        let is_named = match kept {
            Some(kept) => {
                let mut steps = 1..=kept;
                steps.any(|step| message.contains(&format!("is after step `{step}`")))
            }
            None => message.contains("start it again"),
        };
        let after = format!("after step `{stop}`");
        assert!(message.contains(&after) && is_named, "{path}: {message}");
        let report = train(&config, &regression(64), Resume::Continue, &store).unwrap();
        let (files, report) = finished(&store, report);
        assert_eq!(report, expected, "{path}");
        assert!(last(&files) == last(&expected_files), "{path}");
    }
}
