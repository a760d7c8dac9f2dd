//! The records of a batch, decided one after another.

use std::collections::BTreeMap;

use feedline_readers::{
    json::JsonRecord,
    value::{CanonicalForm, Fault, Value, shorten},
};
use feedline_schemas::{
    commit::{Decisions, note},
    config::{ContractConfig, DuplicateKeys},
    ids::Hash128,
};

use super::{
    cells::Cells,
    children::Children,
    rejects::{Reject, frozen, own_key},
    tape_records::{Found, Plain},
};
use crate::{
    contract::{Contract, Rejection, Verdict, read_declared_bytes},
    dedup::Window,
    error::Error,
};

/// A batch while its records are decided.
pub(super) struct Deciding<'a> {
    pub(super) source: &'a str,
    pub(super) config: &'a ContractConfig,
    pub(super) contract: Contract<'a>,
    pub(super) children: Children<'a>,
    pub(super) window: &'a mut Window,
    pub(super) cells: Cells,
    pub(super) plain: Plain,
    pub(super) rejects: Vec<Reject>,
    pub(super) duplicates: u64,
    pub(super) nulled: BTreeMap<usize, u64>,
    /// Faults that were passed over.
    pub(super) repaired: Decisions,
}

impl Deciding<'_> {
    /// Decides about a record of a tape. Builds a value tree only if there is something to decide.
    pub(super) fn json(&mut self, row: u32, record: &JsonRecord) -> Result<(), Error> {
        if !self.children.is_empty() || self.window.has_key() {
            return self.decide(row, record.value(), Some(record));
        }
        let start = self.cells.texts.len();
        let levels = self.config.max_depth.get();
        let found = self
            .plain
            .write(record, levels, &self.contract, &mut self.cells);
        if matches!(found, Found::Odd) {
            return self.decide(row, record.value(), Some(record));
        }
        let hash = Hash128::of(&self.cells.texts.as_bytes()[start..]);
        if self.window.contains(hash, None) {
            self.cells.texts.truncate(start);
            self.duplicates += 1;
            return Ok(());
        }
        let is_plain = self.plain.place(record, &self.contract, &mut self.cells)
            && self.contract.take(&self.plain.cells, &self.cells.texts);
        if !is_plain {
            self.cells.texts.truncate(start);
            return self.decide(row, record.value(), Some(record));
        }
        self.window.push(hash, None);
        self.cells.push(row, hash, self.plain.cells.drain(..));
        Ok(())
    }

    /// Decides about a record that is an object.
    pub(super) fn record(&mut self, row: u32, mut record: Value) -> Result<(), Error> {
        read_declared_bytes(&mut record, self.config);
        self.decide(row, record, None)
    }

    /// Decides about a record that is an object, which is `on_tape` too if it comes from a tape.
    fn decide(
        &mut self,
        row: u32,
        mut record: Value,
        on_tape: Option<&JsonRecord>,
    ) -> Result<(), Error> {
        let mut form = record.canonical_form();
        if form.has_faults {
            let raw = record.written();
            match self.settled(record) {
                Ok(settled) => {
                    record = settled;
                    form = record.canonical_form();
                }
                Err(rejection) => {
                    self.rejects.push(Reject::of(row, rejection, raw));
                    return Ok(());
                }
            }
        }
        let hash = Hash128::of(form.text.as_bytes());
        let key = self.window.key_of(&record);
        if self.window.contains(hash, key) {
            self.duplicates += 1;
            return Ok(());
        }
        let written = (form.is_rewritten && on_tape.is_none()).then(|| record.written());
        let raw = || raw_of(form, written, on_tape);
        let Value::Object(entries) = record else {
            return Ok(());
        };
        let verdict = match self.children.begin(row, hash, entries) {
            Ok(entries) => self.contract.admit(entries),
            Err(verdict) => verdict,
        };
        self.children.end(matches!(verdict, Verdict::Land { .. }));
        match verdict {
            Verdict::Land { cells, nulled } => {
                for column in nulled {
                    *self.nulled.entry(column).or_default() += 1;
                }
                self.window.push(hash, key);
                self.cells.land(row, hash, cells);
            }
            Verdict::Reject(rejection) => self.rejects.push(Reject::of(row, rejection, raw())),
            Verdict::Stop(key, rejection) => {
                let raw = raw();
                let record = shorten(&raw, 500);
                let key = own_key(self.config, &key, &rejection.path);
                return Err(frozen(self.source, &key, rejection, &record));
            }
        }
        Ok(())
    }

    /// Drops the rejects that an earlier reading rejected for the same reason: they are returned again,
    /// as in a lookback, and count as duplicates.
    pub(super) fn drop_known_rejects(&mut self) {
        let found = self.rejects.len();
        let window = &*self.window;
        self.rejects
            .retain(|reject| !window.knows_reject(reject.hash()));
        self.duplicates += (found - self.rejects.len()) as u64;
    }

    /// Resolves the faults of a record by `contract.duplicate_keys`. The reason of a rejection is a fault
    /// that no setting resolves, if there is one.
    fn settled(&mut self, record: Value) -> Result<Value, Rejection> {
        let rejection = |path: String, fault: &Fault| Rejection {
            reason: fault.reason,
            path,
            detail: fault.detail.clone(),
        };
        let mut found = Vec::new();
        let mut first = None;
        let settled = record.settle("", &mut |path, fault| {
            let sample = format!(
                "{}: {}",
                fault.detail,
                shorten(&fault.kept.canonical(), 100)
            );
            found.push((fault.reason, path.to_owned(), sample));
            first.get_or_insert_with(|| rejection(path.to_owned(), fault));
        });
        let settled = settled.map_err(|(path, fault)| rejection(path, &fault))?;
        if let (DuplicateKeys::Reject, Some(first)) = (self.config.duplicate_keys, first) {
            return Err(first);
        }
        for (reason, path, sample) in found {
            note(&mut self.repaired, reason, &path, 1, || sample);
        }
        Ok(settled)
    }
}

/// Text of a rejected record: its canonical form, but with numbers as the source wrote them. That of
/// a record on a tape is made only here, because few records are rejected.
fn raw_of(form: CanonicalForm, written: Option<String>, on_tape: Option<&JsonRecord>) -> String {
    match on_tape {
        Some(record) if form.is_rewritten => record.value().written(),
        _ => written.unwrap_or(form.text),
    }
}
