//! Exit codes, and the display of errors.

use std::{io::Write as _, process::ExitCode};

use feedline_preprocess::told;
use feedline_schemas::{Classified, ContractError, ErrorKind, config::ConfigError};

use crate::launch::RankError;

/// Outcome of a command that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is done.
    Done,
    /// Done, with rejected rows where none were accepted (`--fail-on-rejects`).
    Rejected,
    /// Checked, and found bad.
    Bad,
    /// Checked, and the configuration is wrong.
    Invalid,
}

impl Outcome {
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::Bad => 1,
            Self::Invalid => 2,
            Self::Rejected => 3,
        })
    }
}

/// Prints clap's message; help and version are no errors.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if error.print().is_err() {
        return ExitCode::FAILURE;
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// Prints the chain of causes on standard error, each once.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    // Standard error may be closed; the exit code reports the failure then.
    let text = match error.downcast_ref() {
        Some(error) => ConfigError::with_excerpt(error),
        None => told(error.as_ref()),
    };
    let _written = writeln!(std::io::stderr(), "error: {}", shown(&text));
    ExitCode::from(code_of(error))
}

/// Replaces in `text` the characters that control a terminal or reorder the display. Files and
/// servers influence the displayed text.
pub(crate) fn shown(text: &str) -> String {
    let replaced = |c: char| match c {
        '\n' | '\t' => c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            '\u{fffd}'
        }
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(replaced).collect()
}

/// Returns the exit code, by the caller's next action.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    if let Some(RankError { code, .. }) = error.downcast_ref() {
        return *code;
    }
    match kind_of(error) {
        Some(ErrorKind::Config) => 2,
        Some(ErrorKind::Deferred) => 4,
        Some(ErrorKind::Retry | ErrorKind::Cancelled | ErrorKind::Data | ErrorKind::Bug) | None => {
            1
        }
    }
}

/// The kind of an error of a stage; `None` for one of the program itself.
fn kind_of(error: &anyhow::Error) -> Option<ErrorKind> {
    fn of<E: Classified + std::error::Error + Send + Sync + 'static>(
        error: &anyhow::Error,
    ) -> Option<ErrorKind> {
        error.downcast_ref::<E>().map(Classified::kind)
    }
    let stages = [
        of::<ConfigError>,
        of::<ContractError>,
        of::<feedline_storage::Error>,
        of::<feedline_ingest::Error>,
        of::<feedline_preprocess::Error>,
        of::<feedline_loader::Error>,
        of::<feedline_trainer::Error>,
    ];
    stages.iter().find_map(|of| of(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_configurations_and_deferrals_have_codes_of_their_own() {
        let location = || feedline_storage::Error::Location {
            url: "ftp://host/data".to_owned(),
            reason: "scheme `ftp` is not supported".to_owned(),
        };
        let absent = || feedline_storage::Error::NotFound {
            url: "file:///data".to_owned(),
        };
        let deferred = feedline_ingest::Error::Deferred {
            r#source: "prices".to_owned(),
            until_unix_s: 0,
            wait_s: 0,
            reason: String::new(),
        };
        let run_exists = feedline_trainer::Error::RunExists { url: String::new() };
        let cases: [(anyhow::Error, u8); 8] = [
            (location().into(), 2),
            (feedline_trainer::Error::Storage(location()).into(), 2),
            (run_exists.into(), 2),
            (deferred.into(), 4),
            (absent().into(), 1),
            (feedline_ingest::Error::Cancelled.into(), 1),
            (feedline_preprocess::Error::Storage(absent()).into(), 1),
            (anyhow::anyhow!("of the program itself"), 1),
        ];
        for (error, code) in cases {
            assert_eq!(code_of(&error), code, "{error:#}");
        }
    }

    #[test]
    fn what_turns_text_or_moves_a_cursor_is_not_shown() {
        let text = "a\u{202e}b\u{2067}c\u{1b}[31md\u{9b}e\tf\n";
        let expected = "a\u{fffd}b\u{fffd}c\u{fffd}[31md\u{fffd}e\tf\n";
        assert_eq!(shown(text), expected);
    }
}
