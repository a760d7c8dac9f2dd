//! Pages by the time and key of the last record.
//!
//! Each page is requested from the last record's time, inclusively: records with this time are
//! returned again, and seen ones are skipped by their keys. So records that share a time are read
//! completely. If an API skips some of them, that is noticed, since no seen record is returned
//! again.

use std::{cmp::Ordering, collections::HashSet};

use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{commit::PageRun, config::KeysetPages, count::counted, ids::Hash128};

use crate::{param::Param, watermark::Mark};

/// Maximum number of keys of one time that are kept, about 40 bytes each in a commit.
const MOST_KEYS: usize = 100_000;

/// Settings of keyset pages.
#[derive(Clone, Debug)]
pub(super) struct Keyset {
    time_path: String,
    time_param: String,
    key_path: String,
    key_param: Option<String>,
    page_size: u64,
    is_exclusive: bool,
}

/// The last record of a page.
struct Last {
    time: Mark,
    key: String,
    /// Number of records of the page, which shows whether it was full.
    records: u64,
}

impl Keyset {
    pub(super) fn new(keys: &KeysetPages, page_size: u64) -> Self {
        Self {
            time_path: keys.time_path.clone(),
            time_param: keys.time_param.clone(),
            key_path: keys.key_path.clone(),
            key_param: keys.key_param.clone(),
            page_size,
            is_exclusive: keys.exclusive,
        }
    }

    /// Query parameters for the records after `cursor`.
    pub(super) fn query(&self, cursor: &str) -> Result<Vec<Param<'_>>, String> {
        let Last { time, key, .. } = Last::parse(cursor)?;
        let mut query = vec![Param {
            name: &self.time_param,
            value: time.text().to_owned(),
            is_number: time.is_integer(),
        }];
        let param = self.key_param.as_deref();
        query.extend(param.map(|name| Param::text(name, key)));
        Ok(query)
    }

    /// Removes the records that have been seen, and returns the next cursor; `None` at the end.
    ///
    /// # Errors
    /// A message if records are not in ascending order, cannot be distinguished, or would be
    /// skipped.
    pub(super) fn next(
        &self,
        cursor: Option<&str>,
        run: &mut PageRun,
        records: &mut Vec<Record>,
    ) -> Result<Option<String>, String> {
        let before = cursor.map(Last::parse).transpose()?;
        let count = records.len() as u64;
        let seen: HashSet<Hash128> = run.boundary.iter().copied().collect();
        let (mut last, mut repeated, mut fresh) = (None, 0_u64, 0_u64);
        let mut kept = Vec::with_capacity(records.len());
        let mut boundary = Vec::new();
        for record in records.drain(..) {
            let Some(value) = record.value() else {
                kept.push(record);
                continue;
            };
            let (time, key) = self.place(&value)?;
            let hash = Hash128::of(key.as_bytes());
            let order = |earlier: &Mark| time.compare(earlier);
            let is_boundary = match &before {
                Some(before) => order(&before.time)? == Ordering::Equal,
                None => false,
            };
            let earlier = last.as_ref().or(before.as_ref());
            let step = earlier.map_or(Ok(Ordering::Greater), |last| order(&last.time))?;
            if step == Ordering::Less {
                let is_first = last.is_none();
                return Err(match &before {
                    Some(before) if is_first => self.begun_again(&time, before),
                    _ => self.disordered(&time, earlier),
                });
            }
            if step == Ordering::Greater || self.key_param.is_some() {
                boundary.clear();
            }
            let is_repeated = is_boundary && seen.contains(&hash);
            if !is_repeated || self.key_param.is_some() {
                boundary.push(hash);
            }
            if is_repeated {
                repeated += 1;
            } else {
                fresh += 1;
                kept.push(record);
            }
            last = Some(Last {
                time,
                key,
                records: count,
            });
        }
        *records = kept;
        let Some(last) = last.filter(|_| fresh > 0) else {
            return self.ended(before.as_ref(), count, repeated).map(|()| None);
        };
        if let Some(before) = &before {
            self.check_overlap(before, repeated)?;
            if last.time.compare(&before.time)? == Ordering::Equal && self.key_param.is_none() {
                boundary.splice(0..0, run.boundary.iter().copied());
            }
        }
        if boundary.len() > MOST_KEYS {
            return Err(format!(
                "more than {MOST_KEYS} records have the time `{}`; give `pagination.key_param`",
                last.time.text()
            ));
        }
        run.boundary = boundary;
        Ok(Some(last.write()))
    }

    fn place(&self, record: &Value) -> Result<(Mark, String), String> {
        let time = Mark::of(record, &self.time_path, "pagination.time_path")?.ok_or_else(|| {
            let path = &self.time_path;
            format!("a record has no value at `{path}` (`pagination.time_path`), by which pages are ordered")
        })?;
        let key = match record.at(&self.key_path) {
            Some(Value::Text(key)) => key.clone(),
            Some(Value::Cell(key)) => key.trim().to_owned(),
            Some(Value::Int(key)) => key.to_string(),
            other => {
                return Err(format!(
                    "a record has {} at `{}` (`pagination.key_path`) where a key (text or an integer) should be",
                    other.map_or("nothing", Value::kind),
                    self.key_path
                ));
            }
        };
        Ok((time, key))
    }

    /// Error of a page whose first record comes before the time that it was asked from.
    fn begun_again(&self, time: &Mark, before: &Last) -> String {
        let Self {
            time_path,
            time_param,
            ..
        } = self;
        format!(
            "a page asked for with `{time_param}` = `{}` begins with a record whose `{time_path}` is `{}`, so the server seems to ignore the parameter `{time_param}` (`pagination.time_param`), or to understand it otherwise; give the parameter that takes a lowest `{time_path}`, or another `pagination.type`, which `feedline plan --ask` suggests; if the parameter is right, ask for ascending order by a parameter in `params`",
            before.time.text(),
            time.text()
        )
    }

    fn disordered(&self, time: &Mark, earlier: Option<&Last>) -> String {
        format!(
            "a record with `{}` = `{}` comes after one with `{}`: pages by keyset must be in ascending order; ask for it by a parameter in `params`",
            self.time_path,
            time.text(),
            earlier.map_or("", |last| last.time.text())
        )
    }

    /// Checks that a page without a new record is the end.
    fn ended(&self, before: Option<&Last>, count: u64, repeated: u64) -> Result<(), String> {
        let Some(before) = before else {
            return Ok(());
        };
        if repeated > 0 && count >= self.page_size {
            let advice = if self.key_param.is_some() {
                "the API seems to ignore `pagination.key_param`"
            } else {
                "give `pagination.key_param` if the API has such a parameter, otherwise ask for larger pages"
            };
            return Err(format!(
                "a full page of {} with the time `{}` has been seen already, so what comes after them cannot be reached; {advice}",
                counted(count, "record"),
                before.time.text()
            ));
        }
        if count == 0 && before.records < self.page_size {
            return Ok(());
        }
        self.check_overlap(before, repeated)
    }

    /// Refuses a page that does not begin with a seen record: others of the same time may be
    /// missing.
    fn check_overlap(&self, before: &Last, repeated: u64) -> Result<(), String> {
        let is_proved = repeated > 0 || self.key_param.is_some() || self.is_exclusive;
        if is_proved || before.records < self.page_size {
            return Ok(());
        }
        Err(format!(
            "a full page ended with the time `{}`, and asked from that time on the API gives no record of it again: it seems to give only later ones, and records of the same time would be left out; give `pagination.key_param`, a parameter that makes the bound inclusive, or set `pagination.exclusive` if no two records share a time",
            before.time.text()
        ))
    }
}

impl Last {
    fn parse(cursor: &str) -> Result<Self, String> {
        let (time, key, records): (String, String, u64) = serde_json::from_str(cursor)
            .map_err(|_| "the landed cursor is not one of keyset pages".to_owned())?;
        let time = Mark::parse(&time)?;
        Ok(Self { time, key, records })
    }

    fn write(&self) -> String {
        let parts = (self.time.text(), &self.key, self.records);
        serde_json::to_string(&parts).expect("texts and a number can be written")
    }
}
