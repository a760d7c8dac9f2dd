//! Progress: bars on a terminal, log lines otherwise, always on standard error.

use std::{
    collections::HashMap,
    fmt,
    io::IsTerminal as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use feedline_schemas::progress::{Event, Progress, Silent};
use feedline_storage::clock::{Clock, SystemClock};
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

const LOG_EVERY: Duration = Duration::from_secs(5);

/// Returns the progress receiver for standard error, and the bars if it draws any. Only the rank
/// that `leads` shows anything.
pub(crate) fn for_terminal(leads: bool) -> (Arc<dyn Progress>, Option<Arc<Bars>>) {
    if !leads {
        (Arc::new(Silent), None)
    } else if std::io::stderr().is_terminal() {
        let bars = Arc::new(Bars::default());
        (Arc::clone(&bars) as Arc<dyn Progress>, Some(bars))
    } else {
        (Arc::new(Lines::default()), None)
    }
}

/// One bar a stage.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    all: MultiProgress,
    by_stage: Mutex<HashMap<String, ProgressBar>>,
}

impl Bars {
    /// Removes the bars, so that the next output is not mixed with them.
    pub(crate) fn clear(&self) {
        let mut by_stage = self.by_stage.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, bar) in by_stage.drain() {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
    }
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
            "{{prefix:<24}} {{wide_bar:.cyan/dim}} {{human_pos}}/{{human_len}} {unit} {{rate}} {{eta}} {{msg}}"
        )
    } else {
        format!("{{prefix:<24}} {{spinner}} {{human_pos}} {unit} {{rate}} {{elapsed}} {{msg}}")
    };
    let style = ProgressStyle::with_template(&template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
        // The report's writer notices a closed terminal.
        write!(out, "{}/s", three_digits(state.per_sec())).ok();
    })
}

/// `value` with three significant digits and `k`, `M` or `G`, such as `1.73k`.
pub(crate) fn three_digits(value: f64) -> String {
    let scales = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    // A number that rounds up to a thousand belongs to the next scale.
    let scale = scales
        .into_iter()
        .find(|(scale, _)| value.abs() >= 0.9995 * scale);
    let (value, unit) = scale.map_or((value, ""), |(scale, unit)| (value / scale, unit));
    match value.abs() {
        large if large >= 99.95 => format!("{value:.0}{unit}"),
        medium if medium >= 9.995 => format!("{value:.1}{unit}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.2}{unit}"),
    }
}

#[derive(Debug, Default)]
struct Lines {
    last: Mutex<HashMap<String, LoggedEvent>>,
}

/// Last reported event of a stage.
#[derive(Debug)]
struct LoggedEvent {
    at: Duration,
    done: u64,
    note: String,
}

impl Progress for Lines {
    fn report(&self, event: Event<'_>) {
        let now = SystemClock.monotonic();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let at_end = event.total == Some(event.done);
        match last.get(event.stage) {
            Some(logged) if now.saturating_sub(logged.at) < LOG_EVERY && !at_end => return,
            // A continuing wait is logged once.
            Some(logged) if logged.done == event.done && logged.note == event.note && !at_end => {
                return;
            }
            _ => {}
        }
        let logged = LoggedEvent {
            at: now,
            done: event.done,
            note: event.note.to_owned(),
        };
        last.insert(event.stage.to_owned(), logged);
        drop(last);
        tracing::info!(
            target: "feedline::progress",
            stage = event.stage, done = event.done, total = event.total, unit = event.unit, note = event.note,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        let shown = [
            0.0, 0.1234, 1.725, 9.996, 12.34, 123.4, 999.4, 999.6, 1_725.57, 99_960.0, 1.0e6,
            2.345e9,
        ];
        let expected = [
            "0", "0.12", "1.73", "10.0", "12.3", "123", "999", "1.00k", "1.73k", "100k", "1.00M",
            "2.35G",
        ];
        assert_eq!(shown.map(three_digits), expected.map(ToOwned::to_owned));
    }
}
