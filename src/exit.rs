//! Exit codes, and the display of errors.

use std::{io::Write as _, process::ExitCode};

use feedline_preprocess::told;
use feedline_schemas::config::ConfigError;

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
    use feedline_trainer::ErrorKind as Trainer;
    if error.is::<ConfigError>() {
        return 2;
    }
    if let Some(RankError { code, .. }) = error.downcast_ref() {
        return *code;
    }
    if let Some(feedline_ingest::ErrorKind::Deferred) =
        error.downcast_ref().map(feedline_ingest::Error::kind)
    {
        return 4;
    }
    if let Some(feedline_storage::Error::Location { .. }) = error.downcast_ref() {
        return 2;
    }
    if let Some(feedline_loader::Error::Config { .. } | feedline_loader::Error::Location { .. }) =
        error.downcast_ref()
    {
        return 2;
    }
    if let Some(feedline_preprocess::Error::Config { .. }) = error.downcast_ref() {
        return 2;
    }
    if let Some(Trainer::Config) = error.downcast_ref().map(feedline_trainer::Error::kind) {
        return 2;
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_text_or_moves_a_cursor_is_not_shown() {
        let text = "a\u{202e}b\u{2067}c\u{1b}[31md\u{9b}e\tf\n";
        let expected = "a\u{fffd}b\u{fffd}c\u{fffd}[31md\u{fffd}e\tf\n";
        assert_eq!(shown(text), expected);
    }
}
