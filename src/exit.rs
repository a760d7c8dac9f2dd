//! Exit codes, and the display of errors.

use std::{fmt, io::Write as _, process::ExitCode};

use clap::{
    Command, CommandFactory as _,
    error::{ContextKind, ContextValue, ErrorKind as UsageKind},
};
use feedline_preprocess::message_with_causes;
use feedline_schemas::{Classified, ContractError, ErrorKind, config::ConfigError};
use feedline_trainer::Resume;

use crate::{cli::Cli, launch::RankError};

/// Error whose message has lines of an example, which stay lines.
#[derive(Debug)]
pub(crate) struct ErrorWithExample(pub(crate) String);

impl fmt::Display for ErrorWithExample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ErrorWithExample {}

/// Error of a training that can be resumed, with the way to do so.
#[derive(Debug)]
pub(crate) struct ResumableError {
    pub(crate) error: feedline_trainer::Error,
    /// End of the message.
    pub(crate) advice: &'static str,
}

impl fmt::Display for ResumableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.error, self.advice)
    }
}

impl std::error::Error for ResumableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl Classified for ResumableError {
    fn kind(&self) -> ErrorKind {
        self.error.kind()
    }
}

/// Error of a source whose message has a mask in place of each secret.
#[derive(Debug)]
pub(crate) struct MaskedError {
    pub(crate) message: String,
    pub(crate) kind: ErrorKind,
}

impl fmt::Display for MaskedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MaskedError {}

impl Classified for MaskedError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Adds the way to resume to the error of an interrupted training.
pub(crate) fn with_advice(error: anyhow::Error, resume: Resume) -> anyhow::Error {
    use feedline_trainer::Error::{Interrupted, InterruptedUnsaved};

    let advice = resume_advice(resume);
    match error.downcast() {
        Ok(error @ (Interrupted { .. } | InterruptedUnsaved { kept: Some(_), .. })) => {
            ResumableError { error, advice }.into()
        }
        // Without a checkpoint there is none to resume from.
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

/// End of a message that names a checkpoint to resume from: `run` resumes by itself, and `train`
/// by an option.
pub(crate) const fn resume_advice(resume: Resume) -> &'static str {
    match resume {
        Resume::Continue => ": rerun the same command",
        Resume::Fresh | Resume::Prolong => " with `--resume`",
    }
}

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
    if let Some(hint) = nested_command(error) {
        // Standard error may be closed; the exit code reports the failure then.
        let _written = writeln!(std::io::stderr(), "\n  tip: {hint}");
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// Names the commands that have an unknown one below them, such as `ingest status` for `status`.
fn nested_command(error: &clap::Error) -> Option<String> {
    if error.kind() != UsageKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let cli = Cli::command();
    let has_it = |command: &&Command| command.get_subcommands().any(|c| c.get_name() == name);
    let found = cli.get_subcommands().filter(has_it);
    let found: Vec<String> = found
        .map(|command| format!("`feedline {} {name}`", command.get_name()))
        .collect();
    (!found.is_empty()).then(|| format!("there is {}", found.join(" and ")))
}

/// Prints the chain of causes on standard error, each once.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    // Standard error may be closed; the exit code reports the failure then.
    let text = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => ConfigError::with_excerpt(error),
        (None, Some(ErrorWithExample(lines))) => lines.clone(),
        (None, None) => message_with_causes(error.as_ref()),
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
        of::<ResumableError>,
        of::<MaskedError>,
    ];
    stages.iter().find_map(|of| of(error))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::ids::Step;
    use feedline_trainer::KeptCheckpoint;

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
        let masked = MaskedError {
            message: String::new(),
            kind: ErrorKind::Deferred,
        };
        let cases: [(anyhow::Error, u8); 9] = [
            (location().into(), 2),
            (feedline_trainer::Error::Storage(location()).into(), 2),
            (run_exists.into(), 2),
            (deferred.into(), 4),
            (masked.into(), 4),
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
    fn an_interrupted_training_ends_with_the_way_to_resume_that_its_command_has() {
        let message = |error: feedline_trainer::Error, resume| {
            let error = with_advice(error.into(), resume);
            assert_eq!(code_of(&error), 1);
            let lines = message_with_causes(error.as_ref());
            lines.lines().next().unwrap_or_default().to_owned()
        };
        let interrupted = || feedline_trainer::Error::Interrupted {
            checkpoint: "a.safetensors".to_owned(),
        };
        let unsaved = |kept: Option<&str>| feedline_trainer::Error::InterruptedUnsaved {
            step: Step::new(7),
            kept: kept.map(|url| KeptCheckpoint {
                url: url.to_owned(),
                step: Step::new(5),
            }),
            source: Box::new(interrupted()),
        };
        let run = message(interrupted(), Resume::Continue);
        assert!(
            run.ends_with("`a.safetensors`: rerun the same command"),
            "{run}"
        );
        for resume in [Resume::Fresh, Resume::Prolong] {
            let train = message(interrupted(), resume);
            assert!(
                train.ends_with("`a.safetensors` with `--resume`"),
                "{train}"
            );
        }
        let saved_before = message(unsaved(Some("b")), Resume::Fresh);
        let part = "resume from `b`, which is after step `5` with `--resume`";
        assert!(saved_before.contains(part), "{saved_before}");
        let lost = message(unsaved(None), Resume::Fresh);
        assert!(lost.contains("so start it again"), "{lost}");
        assert!(!lost.contains("--resume"), "{lost}");
    }

    #[test]
    fn what_turns_text_or_moves_a_cursor_is_not_shown() {
        let text = "a\u{202e}b\u{2067}c\u{1b}[31md\u{9b}e\tf\n";
        let expected = "a\u{fffd}b\u{fffd}c\u{fffd}[31md\u{fffd}e\tf\n";
        assert_eq!(shown(text), expected);
    }
}
