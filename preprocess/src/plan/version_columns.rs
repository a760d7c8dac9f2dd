//! Columns of one schema version as the dataset has them: typed, hashed, split and checked.

use arrow::datatypes::DataType;
use datafusion::{
    common::ScalarValue,
    logical_expr::{Expr, cast, ident, lit, when},
    prelude::DataFrame,
};
use feedline_schemas::{
    config::{Fraction, MissingKey, Task},
    manifest::Split,
    record::{ColumnType, RecordSchema},
    transform::{InputKind, NumberSigns},
};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{
        coerce::{Category, Missing, Numeric},
        content_column::{ContentColumn, ContentKind, Image, Text},
        dedup::{conflicts, content_hash::Cells, near::NearDup},
        document::{self, Quality},
        images::Images,
        join,
        missing_filter::MissingFilter,
        number_format, passthrough_columns,
        row_check::{Judge, Judged},
        split::{
            ByName, Rule, Splitter, TimeRule, code,
            missing::{self, HasKey, KeyGroup},
        },
        time_series::{self, Series},
    },
    schema::{
        dataset_spec::DatasetSpec,
        landed_cells::{self, content_hash, landed, origin, text},
        reject_reason, system_columns,
    },
};

/// Reads the columns of one schema version as the dataset wants them.
pub(super) struct VersionColumns<'a> {
    pub(super) schema: &'a RecordSchema,
    pub(super) spec: &'a DatasetSpec,
    pub(super) missing: Missing,
    /// Number format of text columns.
    pub(super) signs: Option<NumberSigns>,
    /// True if the rows are the test split.
    pub(super) is_frozen: bool,
}

impl VersionColumns<'_> {
    /// The landed rows, with documents as the rest of the plan sees them.
    pub(super) fn prepared(&self, rows: DataFrame) -> Result<DataFrame, Error> {
        match (&self.spec.config.text, self.spec.document()) {
            (Some(text), Some(payload)) => document::prepared(rows, &payload.column, text),
            _ => Ok(rows),
        }
    }

    /// The frame's columns.
    pub(super) fn columns(&self, source: u64) -> Result<Vec<Expr>, Error> {
        let spec = self.spec;
        let mut columns = self.leading_columns(source)?;
        for column in &spec.kept {
            let cell = landed_cells::typed(self.schema, &column.name, column.r#type)?;
            columns.push(cell.alias(passthrough_columns::named(column)));
        }
        columns.extend(spec.payloads().map(|payload| self.payload(payload)));
        let images = spec.images().into_iter();
        let beside = images.flat_map(Images::beside);
        columns.extend(beside.map(|(name, column)| self.written(name).alias(column)));
        let carried = spec.near_dup.as_ref().and_then(NearDup::carried);
        columns.extend(carried.map(|name| text(self.landed(name)).alias(system_columns::TEXT)));
        let redacted = spec.config.text.iter();
        columns.extend(redacted.map(|_| ident(system_columns::REDACTED)));
        columns.extend(self.series()?);
        let inputs = spec.landed_inputs();
        columns.extend(inputs.map(|c| self.typed(&c.name, c.kind)));
        let targets = spec.apart_targets();
        columns.extend(targets.map(|t| match t.task {
            Task::Regression => self.typed(&t.column, InputKind::Numeric),
            Task::Classification => self.typed(&t.column, InputKind::Categorical),
        }));
        Ok(columns)
    }

    /// Origin, content hash, split and reject reason, then group and time where the split has them.
    fn leading_columns(&self, source: u64) -> Result<Vec<Expr>, Error> {
        let hash = self.content_hash();
        let group = self.group(&hash);
        let key = group.clone().unwrap_or(hash.clone());
        let (split, reject) = self.split_and_reject(key, self.spec.requires_target)?;
        let mut columns = vec![
            origin(source).alias(system_columns::ORIGIN),
            hash.alias(system_columns::HASH),
            split.alias(system_columns::SPLIT),
            reject.alias(system_columns::REJECT),
        ];
        columns.extend(group.map(|group| group.alias(system_columns::GROUP)));
        if let Rule::Time(time) = &self.spec.rule {
            columns.push(self.split_time(time)?.alias(system_columns::TIME));
        }
        Ok(columns)
    }

    /// Split of a row, and the reason for its rejection, if any, by the `key` of its split.
    fn split_and_reject(&self, key: Expr, requires_target: bool) -> Result<(Expr, Expr), Error> {
        let judged = self.keyed(self.sparse(self.quality(self.judge(requires_target))))?;
        let (split, reject) = self.split(key, judged)?;
        Ok((split, self.timed(self.expected(reject))?))
    }

    /// True for a row that a build rejects only for its target.
    fn target_only(&self) -> Result<Expr, Error> {
        let hash = self.content_hash();
        let key = self.group(&hash).unwrap_or(hash);
        let (_, all) = self.split_and_reject(key.clone(), true)?;
        let (_, others) = self.split_and_reject(key, false)?;
        Ok(all.is_not_null().and(others.is_null()))
    }

    /// Hash of the cells that make rows duplicates.
    fn content_hash(&self) -> Expr {
        let payload = self.spec.payload.as_ref();
        // Rows that differ in the split that a column names are copies all the same.
        let named = self.spec.config.split.column();
        let named = named.filter(|name| self.spec.inputs.iter().all(|i| i.column.name != **name));
        let content = |name: &&str| match payload {
            Some(payload) => payload.column == *name,
            None => {
                let is_split = named.is_some_and(|split| split == name);
                !is_split && conflicts::is_content(&self.spec.config, name)
            }
        };
        content_hash(self.names().filter(content), Cells::Typed)
    }

    /// Split of a row, as far as the row alone decides it, and the reason for its rejection, if
    /// any.
    fn split(&self, group: Expr, reject: Expr) -> Result<(Expr, Expr), Error> {
        if self.is_frozen {
            return Ok((lit(code(Split::Test)), reject));
        }
        Ok(match &self.spec.rule {
            Rule::Hash | Rule::Range => {
                let splitter = Splitter::new(&self.spec.config.split);
                (splitter.over(vec![group]), reject)
            }
            Rule::Named(named) => {
                let name = named.over(self.schema)?;
                (ByName.over(vec![name.clone()]), named.judged(reject, name))
            }
            Rule::Time(time) => {
                let series = self.spec.series.as_ref();
                // Series reject a time that they cannot read, with how they read it.
                let judged = match series.is_some_and(|series| time.is_of(&series.time)) {
                    true => reject,
                    false => time.judged(reject, self.split_time(time)?, self.schema)?,
                };
                (lit(code(Split::Train)), judged)
            }
        })
    }

    /// The time that a row is split by: a text that is the time of series, too, is read as these read it.
    fn split_time(&self, time: &TimeRule) -> Result<Expr, Error> {
        match &self.spec.series {
            Some(series) if time.is_text_of(&series.time) => Ok(self.instant(series)),
            _ => time.instant(self.schema),
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.schema.columns.iter().map(|c| c.name.as_str())
    }

    /// The columns among `names` that this version has.
    fn known<'b>(&'b self, names: &'b [String]) -> Vec<&'b str> {
        let known = self.names();
        known
            .filter(|known| names.iter().any(|name| name == known))
            .collect()
    }

    /// Hash of the split's key columns, of a row without a key that of its `content`; a column this version lacks counts as
    /// null.
    fn group(&self, content: &Expr) -> Option<Expr> {
        let split = &self.spec.config.split;
        let known = self.known(&split.key);
        let group = content_hash(known.iter().copied(), Cells::Text);
        Some(match (split.missing_key(), &known[..]) {
            _ if split.key.is_empty() => return None,
            (MissingKey::One, _) => group,
            (MissingKey::Own | MissingKey::Reject, []) => content.clone(),
            (MissingKey::Own | MissingKey::Reject, known) => {
                let arguments = [group, content.clone()].into_iter();
                let cells = known.iter().copied().map(ident);
                KeyGroup(self.missing.clone()).over(arguments.chain(cells).collect())
            }
        })
    }

    /// `judged`, and rows without a key, where such rows are rejected.
    fn keyed(&self, judged: Expr) -> Result<Expr, Error> {
        let split = &self.spec.config.split;
        if split.key.is_empty() || split.missing_key() != MissingKey::Reject {
            return Ok(judged);
        }
        let names = (&split.key[..], &self.known(&split.key)[..]);
        let missing = self.missing.clone();
        Ok(missing::reject(
            judged,
            names,
            missing,
            reject_reason::MISSING_KEY,
        )?)
    }

    fn landed(&self, name: &str) -> Expr {
        landed(self.schema, name)
    }

    /// A column of lists, as text; what a schema version has there that is no text is written out, so that it is seen.
    fn written(&self, name: &str) -> Expr {
        let mut columns = self.schema.columns.iter();
        match columns.find(|column| column.name == name).map(|c| c.r#type) {
            Some(ColumnType::Bool | ColumnType::Int64 | ColumnType::Float64) => {
                cast(ident(name), DataType::Utf8)
            }
            _ => text(self.landed(name)),
        }
    }

    fn signs_of(&self, name: &str) -> Option<NumberSigns> {
        number_format::of_column(self.signs, self.schema, name)
    }

    fn payload(&self, payload: &ContentColumn) -> Expr {
        let cell = vec![self.landed(&payload.column)];
        let held = match payload.kind {
            ContentKind::Image => Image.over(cell),
            ContentKind::Text => Text.over(cell),
        };
        held.alias(&payload.column)
    }

    fn typed(&self, name: &str, kind: InputKind) -> Expr {
        let (cell, missing) = (vec![self.landed(name)], self.missing.clone());
        let typed = match kind {
            InputKind::Numeric => Numeric(missing, self.signs_of(name)).over(cell),
            InputKind::Categorical => Category(missing).over(cell),
        };
        typed.alias(name)
    }

    /// `judged`, and rows that are not as expected.
    fn expected(&self, judged: Expr) -> Expr {
        let series = self.spec.series.as_ref();
        let landed = |name: &str| !series.is_some_and(|series| series.makes(name));
        let expect = self.spec.expect.as_ref();
        let Some((rows, columns)) = expect.and_then(|expect| expect.rows(landed)) else {
            return judged;
        };
        let cells = columns.iter().map(|c| self.typed(&c.name, c.kind));
        rows.over(std::iter::once(judged).chain(cells).collect())
    }

    /// Columns that series need.
    fn series(&self) -> Result<Vec<Expr>, Error> {
        let Some(series) = &self.spec.series else {
            return Ok(Vec::new());
        };
        let entity = self.known(&series.entity);
        let mut instant = self.instant(series);
        if !series.entity.is_empty() {
            // A row of no entity is at no place in a series.
            let has_entity = HasKey(self.missing.clone()).of(&entity);
            instant = when(has_entity, instant).end()?;
        }
        let mut columns = vec![
            content_hash(entity.into_iter(), Cells::Text).alias(time_series::ENTITY),
            instant.alias(time_series::TIME),
        ];
        let of = series.of.iter().enumerate();
        columns.extend(of.map(|(place, name)| {
            let typed = Numeric(self.missing.clone(), self.signs_of(name));
            let numbers = typed.over(vec![self.landed(name)]);
            numbers.alias(Series::column_of(place))
        }));
        if series.joins_instants() {
            let target_only = self.target_only()?;
            columns.push(target_only.alias(time_series::TARGET_ONLY));
        }
        Ok(columns)
    }

    fn instant(&self, series: &Series) -> Expr {
        // A column that is already a timestamp must not be parsed as text.
        let cell = |name: &String| match self.names().any(|landed| landed == name) {
            true => ident(name),
            false => lit(ScalarValue::Utf8(None)),
        };
        let cells = std::iter::once(&series.time).chain(&series.clock);
        series.instant(cells.map(cell).collect())
    }

    /// `judged`, and rows of a series that have no entity or no time.
    fn timed(&self, judged: Expr) -> Result<Expr, Error> {
        let Some(series) = &self.spec.series else {
            return Ok(judged);
        };
        let judged = match &series.entity[..] {
            [] => judged,
            names => {
                let names = (names, &self.known(names)[..]);
                let missing = self.missing.clone();
                missing::reject(judged, names, missing, reject_reason::MISSING_ENTITY)?
            }
        };
        let written = std::iter::once(&series.time).chain(&series.clock);
        let written = written.map(|name| self.written(name)).collect();
        Ok(series.timed(judged, self.instant(series), written))
    }

    /// `judged`, and rows that lack too many of their features.
    fn sparse(&self, judged: Expr) -> Expr {
        let Some(share) = self.spec.config.max_missing_fraction.map(Fraction::get) else {
            return judged;
        };
        let inputs = self.spec.landed_inputs();
        let cells = inputs.map(|c| self.typed(&c.name, c.kind));
        let arguments = std::iter::once(judged).chain(cells);
        MissingFilter::new(share).over(arguments.collect())
    }

    /// `judged`, and what the filters of documents say.
    fn quality(&self, judged: Expr) -> Expr {
        let limits = self
            .spec
            .config
            .text
            .as_ref()
            .and_then(|text| text.quality.as_ref());
        let Some((limits, payload)) = limits.zip(self.spec.document()) else {
            return judged;
        };
        let quality = Quality {
            column: payload.column.clone(),
            limits: limits.clone(),
        };
        quality.over(vec![judged, self.landed(&payload.column)])
    }

    /// Landed columns that are checked: contents, targets, then numeric features.
    fn judged_columns(&self, requires_target: bool) -> impl Iterator<Item = (String, Judged)> {
        let target = self.spec.targets();
        let target = target.filter(move |_| requires_target);
        let target = target.map(|t| match t.task {
            Task::Regression => (t.column.clone(), Judged::NumericTarget),
            Task::Classification => (t.column.clone(), Judged::ClassTarget),
        });
        let inputs = self.spec.landed_inputs();
        let numbers = inputs
            .filter(|c| c.kind == InputKind::Numeric)
            .map(|c| (c.name.clone(), Judged::Number));
        let contents = self.spec.payloads().map(|payload| {
            let judged = match payload.kind {
                ContentKind::Image if payload.images.is_some() => Judged::DecodedImage,
                ContentKind::Image => Judged::Image,
                ContentKind::Text => Judged::Document,
            };
            (payload.column.clone(), judged)
        });
        contents.chain(target).chain(numbers)
    }

    fn judge(&self, requires_target: bool) -> Expr {
        let partners = self.spec.joins.iter().filter_map(join::Join::judged);
        let landed = self.judged_columns(requires_target).map(|(name, judged)| {
            let cell = self.landed(&name);
            (name, judged, cell)
        });
        let (mut columns, mut arguments) = (Vec::new(), Vec::new());
        for (name, judged, cell) in partners.chain(landed) {
            columns.push((name, judged));
            arguments.push(cell);
        }
        if columns.is_empty() {
            return lit(ScalarValue::Utf8(None));
        }
        let target = self.spec.target.as_ref();
        // Columns that did not land as texts are read without signs, whatever these are.
        let mut targets = self.spec.targets();
        let signs = targets.find_map(|target| self.signs_of(&target.column));
        let missing = self.missing.clone();
        let mut classes = target.map_or_else(Vec::new, |target| target.classes.clone());
        classes.sort_unstable();
        let judge = Judge {
            columns,
            missing,
            signs,
            classes,
        };
        judge.over(arguments)
    }
}
