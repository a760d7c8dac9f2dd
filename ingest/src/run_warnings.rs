//! Warnings of the last run of a source that its log does not have, stored beside the log for
//! `status`: some are about one run alone, and a run that lands nothing leaves no entry.

use std::collections::BTreeSet;

use bytes::Bytes;
use feedline_schemas::{
    commit::CommitEntry,
    config::SourceConfig,
    decode, encode,
    format::RUN_WARNINGS,
    ids::Name,
    report::{LastRunWarnings, Warning, replace_warning},
    run_warnings::{RunWarnings, WARNINGS_FILE},
};
use feedline_storage::Store;

use crate::{
    context::Context,
    error::Error,
    held_warnings::{holding, without_users},
    landing_folder::landing,
};

/// Warnings of a run that the state of the log does not have.
#[derive(Debug, Default)]
pub(crate) struct FoundWarnings {
    all: Vec<Warning>,
    /// True if the run read its source to the end, except for values of a list that failed. Otherwise
    /// a lack of warnings shows nothing.
    pub(crate) is_complete: bool,
}

impl FoundWarnings {
    /// Adds those of `warnings`, with masked secrets, that `last` does not have: the newest entry of
    /// the log.
    pub(crate) fn add(
        &mut self,
        config: &SourceConfig,
        last: Option<&CommitEntry>,
        warnings: &[Warning],
    ) {
        let held = last.map_or_else(Vec::new, |entry| holding(config, &entry.state.warnings));
        for warning in warnings {
            if !held.contains(warning) {
                replace_warning(&mut self.all, warning.clone());
            }
        }
    }

    /// Adds them to the warnings of a report, in place of ones with the same code.
    pub(crate) fn report_in(&self, warnings: &mut Vec<Warning>) {
        for warning in &self.all {
            replace_warning(warnings, warning.clone());
        }
    }
}

/// Records the warnings of a run of `source`. A run without some leaves those of the run before,
/// unless it is complete. A failure to write the record does not affect the run.
pub(crate) async fn note(context: &Context, source: &Name, found: &FoundWarnings) {
    if let Err(error) = write(context, source, found).await {
        tracing::warn!(%source, %error, "the warnings of its last run cannot be recorded");
    }
}

/// Writes the record if its warnings differ from those that are stored.
async fn write(context: &Context, source: &Name, found: &FoundWarnings) -> Result<(), Error> {
    if found.all.is_empty() && !found.is_complete {
        return Ok(());
    }
    let landing = landing(&context.root, source);
    let stored = landing.get_opt(WARNINGS_FILE).await?;
    // An unreadable file is replaced.
    let before = stored.as_ref().and_then(|bytes| {
        let url = landing.url_of(WARNINGS_FILE);
        decode::<RunWarnings>(&url, bytes).ok()
    });
    if found.all.is_empty() {
        if stored.is_some() {
            landing.delete(WARNINGS_FILE).await?;
        }
        return Ok(());
    }
    if before
        .as_ref()
        .is_some_and(|before| before.warnings == found.all)
    {
        return Ok(());
    }
    let first = before.filter(|before| codes_of(&before.warnings) == codes_of(&found.all));
    let (run_id, since_unix_s) = match first {
        Some(first) => (first.run_id, first.since_unix_s),
        None => (context.run_id.clone(), context.clock.unix().as_secs()),
    };
    let record = RunWarnings {
        format: RUN_WARNINGS.format.to_owned(),
        version: RUN_WARNINGS.version,
        source: source.clone(),
        run_id,
        since_unix_s,
        warnings: found.all.clone(),
    };
    let bytes = Bytes::from(encode(&record));
    landing.put(WARNINGS_FILE, bytes).await?;
    Ok(())
}

/// Removes the warnings of the last run of the source at `landing`.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn forget(landing: &Store) -> Result<(), Error> {
    if landing.get_opt(WARNINGS_FILE).await?.is_some() {
        landing.delete(WARNINGS_FILE).await?;
    }
    Ok(())
}

fn codes_of(warnings: &[Warning]) -> BTreeSet<&str> {
    warnings
        .iter()
        .map(|warning| warning.code.as_str())
        .collect()
}

/// Adds the warnings of the last run of the source at `landing` to those of its log, in place of
/// ones with the same code. Returns their codes and their time; `None` if there are none.
///
/// # Errors
/// [`Error::Contract`] for a file that cannot be read, [`Error::Storage`].
pub(crate) async fn add_to(
    warnings: &mut Vec<Warning>,
    landing: &Store,
) -> Result<Option<LastRunWarnings>, Error> {
    let Some(bytes) = landing.get_opt(WARNINGS_FILE).await? else {
        return Ok(None);
    };
    let found: RunWarnings = decode(&landing.url_of(WARNINGS_FILE), &bytes)?;
    let mut codes = Vec::with_capacity(found.warnings.len());
    for warning in found.warnings {
        codes.push(warning.code.clone());
        replace_warning(warnings, without_users(warning));
    }
    Ok(Some(LastRunWarnings {
        run_id: found.run_id,
        since_unix_s: found.since_unix_s,
        codes,
    }))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::PaginationKind;
    use feedline_storage::{Effect, Faults, Operation, Rule};

    use super::*;
    use crate::testing::{config, context};

    fn name() -> Name {
        Name::new("s").unwrap()
    }

    fn found(codes: &[&str], is_complete: bool) -> FoundWarnings {
        let warning = |code: &&str| Warning::new(code, format!("about {code}"));
        FoundWarnings {
            all: codes.iter().map(warning).collect(),
            is_complete,
        }
    }

    /// The codes that `context` has stored for status, after those of the log.
    async fn shown(context: &Context, of_log: &[&str]) -> Vec<String> {
        let mut warnings = found(of_log, true).all;
        let landing = landing(&context.root, &name());
        add_to(&mut warnings, &landing).await.unwrap();
        warnings.into_iter().map(|warning| warning.code).collect()
    }

    /// The same store, which fails each `operation` on the file.
    fn failing(context: &Context, operation: Operation) -> Context {
        let rule = Rule {
            operation,
            path_contains: WARNINGS_FILE.to_owned(),
            skip: 0,
            times: u64::MAX,
            effect: Effect::FailBefore,
        };
        Context {
            root: context.root.with_faults(Faults::new(vec![rule])),
            ..context.clone()
        }
    }

    #[tokio::test]
    async fn equal_warnings_are_not_written_again_and_others_are() {
        let context = context();
        let first = found(&["a", "b"], true);
        write(&context, &name(), &first).await.unwrap();
        assert_eq!(shown(&context, &[]).await, ["a", "b"]);
        let unwritable = failing(&context, Operation::Put);
        write(&unwritable, &name(), &first).await.unwrap();
        let other = found(&["a"], true);
        write(&unwritable, &name(), &other).await.unwrap_err();
        // It does not end the run.
        note(&unwritable, &name(), &other).await;
        assert_eq!(shown(&context, &[]).await, ["a", "b"]);
        note(&context, &name(), &other).await;
        assert_eq!(shown(&context, &[]).await, ["a"]);
    }

    #[tokio::test]
    async fn the_time_of_warnings_is_that_of_the_first_run_with_these_codes() {
        let (context, later) = (context(), context());
        let later = Context {
            root: context.root.clone(),
            run_id: "later".into(),
            ..later
        };
        let mut found = found(&["a", "b"], true);
        write(&context, &name(), &found).await.unwrap();
        found.all[0].message = "another text".into();
        write(&later, &name(), &found).await.unwrap();
        let landing = landing(&context.root, &name());
        let mut shown = Vec::new();
        let last = add_to(&mut shown, &landing).await.unwrap().unwrap();
        assert_eq!(
            (last.run_id, &*shown[0].message),
            (context.run_id.clone(), "another text")
        );
        found.all.pop();
        write(&later, &name(), &found).await.unwrap();
        let last = add_to(&mut shown, &landing).await.unwrap().unwrap();
        assert_eq!(last.run_id, "later");
    }

    #[tokio::test]
    async fn a_complete_run_without_warnings_removes_the_file_and_any_other_leaves_it() {
        let context = context();
        let undeletable = failing(&context, Operation::Delete);
        write(&undeletable, &name(), &found(&[], true))
            .await
            .unwrap();
        write(&context, &name(), &found(&["a"], false))
            .await
            .unwrap();
        let unreadable = failing(&context, Operation::Read);
        write(&unreadable, &name(), &found(&[], false))
            .await
            .unwrap();
        assert_eq!(shown(&context, &[]).await, ["a"]);
        write(&context, &name(), &found(&[], true)).await.unwrap();
        let landing = landing(&context.root, &name());
        assert_eq!(landing.get_opt(WARNINGS_FILE).await.unwrap(), None);
        assert!(shown(&context, &[]).await.is_empty());
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_an_error_of_status_and_replaced_by_the_next_run() {
        let context = context();
        let landing = landing(&context.root, &name());
        landing.put(WARNINGS_FILE, "{".into()).await.unwrap();
        let error = add_to(&mut Vec::new(), &landing).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains("remove it: only reports need it"), "{error}");
        note(&context, &name(), &found(&["a"], true)).await;
        assert_eq!(shown(&context, &[]).await, ["a"]);
    }

    #[tokio::test]
    async fn status_has_each_code_once() {
        let context = context();
        note(&context, &name(), &found(&["a", "b"], true)).await;
        assert_eq!(shown(&context, &["b", "c"]).await, ["b", "c", "a"]);
    }

    #[test]
    fn a_warning_that_the_log_has_is_left_out() {
        let text = include_str!("../../schemas/samples/commit-3.json");
        let mut entry: CommitEntry = decode("sample", text.as_bytes()).unwrap();
        let config = config("http://h/", PaginationKind::Page);
        let all = found(&["files_changed", "files_gone"], true).all;
        entry.state.warnings = all[..1].to_vec();
        let mut of_run = FoundWarnings::default();
        of_run.add(&config, Some(&entry), &all);
        assert_eq!(of_run.all, all[1..]);
        let other = Warning::new("files_changed", "more files");
        of_run.add(&config, Some(&entry), std::slice::from_ref(&other));
        assert_eq!(of_run.all, [all[1].clone(), other]);
    }
}
