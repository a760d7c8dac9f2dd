//! Progress: bars on a terminal, log lines otherwise, always on standard error.

use std::{
    collections::HashMap,
    io::IsTerminal as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use feedline_schemas::progress::{Event, Progress};
use feedline_storage::clock::{Clock, SystemClock};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

const LOG_EVERY: Duration = Duration::from_secs(5);

/// The receiver that fits standard error.
pub(crate) fn for_terminal() -> Box<dyn Progress> {
    if std::io::stderr().is_terminal() {
        Box::new(Bars::default())
    } else {
        Box::new(Lines::default())
    }
}

#[derive(Debug, Default)]
struct Bars {
    all: MultiProgress,
    by_stage: Mutex<HashMap<String, ProgressBar>>,
}

impl Progress for Bars {
    fn report(&self, event: Event<'_>) {
        let mut by_stage = self.by_stage.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = by_stage.entry(event.stage.to_owned()).or_insert_with(|| {
            let bar = self.all.add(ProgressBar::no_length());
            bar.set_prefix(event.stage.to_owned());
            bar
        });
        let known = event.total.is_some();
        if known != bar.length().is_some() || bar.position() == 0 {
            bar.set_style(style(known, event.unit));
        }
        if let Some(total) = event.total {
            bar.set_length(total);
        }
        bar.set_position(event.done);
        bar.set_message(event.note.to_owned());
        if event.total == Some(event.done) {
            bar.abandon();
        }
    }
}

fn style(known: bool, unit: &str) -> ProgressStyle {
    let template = if known {
        format!(
            "{{prefix:<24}} {{wide_bar:.cyan/dim}} {{human_pos}}/{{human_len}} {unit} {{per_sec}} {{eta}} {{msg}}"
        )
    } else {
        format!("{{prefix:<24}} {{spinner}} {{human_pos}} {unit} {{per_sec}} {{elapsed}} {{msg}}")
    };
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[derive(Debug, Default)]
struct Lines {
    last: Mutex<HashMap<String, Duration>>,
}

impl Progress for Lines {
    fn report(&self, event: Event<'_>) {
        let now = SystemClock.monotonic();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let at_end = event.total == Some(event.done);
        match last.get(event.stage) {
            Some(then) if now.saturating_sub(*then) < LOG_EVERY && !at_end => return,
            _ => last.insert(event.stage.to_owned(), now),
        };
        drop(last);
        tracing::info!(
            target: "feedline::progress",
            stage = event.stage, done = event.done, total = event.total, unit = event.unit, note = event.note,
        );
    }
}
