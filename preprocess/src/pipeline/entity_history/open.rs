//! Opening the rows of a series: the plan of the build over landed rows and new ones.

use std::{collections::BTreeSet, sync::Arc};

use datafusion::{
    logical_expr::ident,
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    config::{DatasetConfig, PipelineConfig, SplitConfig},
    manifest::{KeptColumn, Manifest},
    record::ColumnType,
};
use feedline_storage::Store;

use super::{
    LandedRows, SeriesRequest, SeriesRows, asked_rows::AskedRows, file_columns::check_columns,
    series_rows::OpenedRows,
};
use crate::{
    Context, Error, Transform,
    engine::{scratch::Scratch, session, store_urls},
    operators::{
        expectations::Expect,
        join::{self, Join},
        time_series::{self, Series},
    },
    pipeline::prepare::Build,
    plan,
    schema::{
        column_roles,
        dataset_spec::DatasetSpec,
        landed_columns::{self, MergedColumn, find},
        system_columns,
    },
    source::{landing_zone::Landed, superseded_files::WithSuperseded},
};

pub(super) async fn open_rows(
    config: &PipelineConfig,
    manifest: &Manifest,
    transform: Arc<Transform>,
    request: SeriesRequest,
    context: &Context,
) -> Result<SeriesRows, Error> {
    let mut build = Build::prepare(config, context).await?;
    if build.spec.series.is_none() {
        let reason =
            "new rows have a past in series only; add the section, or predict without `--history`";
        return Err(Error::config("dataset.series", reason));
    }
    if !build.is_built_as(manifest).await? {
        let reason = "it is not the configuration of the dataset, or an earlier version of feedline built that, so features \
                      could differ from those of the model; rebuild the dataset (`feedline shards build`), or use the configuration that it was \
                      built with";
        return Err(Error::config("dataset", reason));
    }
    let scratch = Scratch::claim(&context.scratch)?;
    let mut roots = Vec::new();
    let has_new = request.rows.as_ref().is_some_and(|rows| !rows.is_empty);
    // Without any row, there is no table to plan.
    let is_replaced = |history: &LandedRows| has_new || !history.is_empty;
    if let Some(history) = request.history.filter(is_replaced) {
        build
            .replace_history(&history, &request.keep, &transform)
            .await?;
        roots.push(history.root);
    }
    let new = match request.rows {
        Some(rows) => {
            let new = build.read_new(&rows, &request.keep, &transform).await?;
            roots.push(rows.root);
            Some(new)
        }
        None => None,
    };
    Box::pin(build.rows_of(new, transform, &request.keep, (scratch, roots))).await
}

/// New rows of a file.
#[derive(Default)]
struct NewRows {
    /// Those that have landed, if any.
    landed: Option<Landed>,
    /// Number in the file of the row that each batch begins with.
    starts: Vec<u64>,
    /// Names of columns that rejected rows have.
    rejected_columns: Vec<String>,
    /// Needed columns that no row has.
    absent: Vec<String>,
}

impl Build<'_> {
    /// Columns whose cells rows of the series need: those of its entity, time, features, targets,
    /// joins and expectations, and those of `keep`. Others only decide which rows are duplicates.
    pub(super) fn needed_columns(&self, keep: &[String]) -> BTreeSet<String> {
        let spec = &self.spec;
        let series = spec.series.iter();
        let series = series.flat_map(|series| series.clock.iter().chain(&series.of));
        let inputs = spec.landed_inputs().map(|input| &input.name);
        let targets = spec.targets().map(|target| &target.column);
        let expected = spec.expect.iter().flat_map(|expect| &expect.columns);
        let expected = expected.map(|column| &column.name);
        let own = series.chain(inputs).chain(targets).chain(expected);
        let mut names: BTreeSet<String> = own.chain(keep).cloned().collect();
        names.extend(self.order_of_past());
        let joined = spec.joins.iter().flat_map(Join::needed);
        names.extend(joined.map(str::to_owned));
        names
    }

    /// Returns true if rows of a history may replace those that have landed.
    fn takes_history(&self) -> bool {
        self.input.query.is_none() && self.dataset.files.is_none()
    }

    /// Puts rows of `history` in the place of those that have landed.
    async fn replace_history(
        &mut self,
        history: &LandedRows,
        keep: &[String],
        transform: &Transform,
    ) -> Result<(), Error> {
        if !self.takes_history() {
            let reason =
                "the past of such rows comes from the query or the files; leave out `--history`";
            return Err(Error::config("dataset", reason));
        }
        if history.is_empty {
            self.input.rows = 0;
            self.input.sources = Vec::new();
            return Ok(());
        }
        let landed = Landed::read(&history.root, &history.source, None).await?;
        self.check_history(&landed, history, transform.artefact())?;
        check_types(&self.input.columns, &landed, &self.needed_columns(keep))?;
        check_not_joined(&self.spec.joins, &landed)?;
        self.input.rows = landed.rows();
        self.input.sources = vec![landed];
        Ok(())
    }

    /// Reads the log of new rows, and checks that they can be read as those that have landed.
    async fn read_new(
        &self,
        rows: &LandedRows,
        keep: &[String],
        transform: &Transform,
    ) -> Result<NewRows, Error> {
        let mut new = NewRows {
            starts: rows.starts.clone(),
            rejected_columns: rows.rejected_columns.clone(),
            ..NewRows::default()
        };
        if rows.is_empty {
            return Ok(new);
        }
        let landed = Landed::read(&rows.root, &rows.source, None).await?;
        let needed = self.columns_of_new(transform.artefact());
        new.absent = check_columns(&needed, &landed, rows)?;
        check_types(&self.input.columns, &landed, &self.needed_columns(keep))?;
        check_not_joined(&self.spec.joins, &landed)?;
        new.landed = Some(landed);
        Ok(new)
    }

    /// Plans the landed rows and the `new` ones as a build does, and starts to read them.
    async fn rows_of(
        mut self,
        new: Option<NewRows>,
        transform: Arc<Transform>,
        keep: &[String],
        (scratch, roots): (Scratch, Vec<Store>),
    ) -> Result<SeriesRows, Error> {
        let is_of_file = new.is_some();
        self.run_query(&scratch).await?;
        let NewRows {
            landed: new,
            starts,
            rejected_columns,
            absent,
        } = new.unwrap_or_default();
        let new_columns = new.iter().flat_map(|new| &new.generations);
        let new_columns = landed_columns::merge(new_columns.map(|generation| &generation.schema));
        let kept = self.kept_of(keep, &new_columns, &rejected_columns)?;
        let mut spec = self.spec_of_past(kept.clone()).await?;
        let new_rows = new.as_ref().map_or(0, Landed::rows);
        let (tables, asked) = self.tables_with(new, is_of_file)?;
        if let Some(series) = &mut spec.series {
            name_sources(Arc::make_mut(series), &tables, asked);
        }
        let session = self.session_of_past(&spec, &scratch, roots).await?;
        let rows = in_order_of_time(&session, &tables, &spec).await?;
        let opened = OpenedRows {
            rows: rows.execute_stream().await?,
            asked,
            entities: self.new_entities(&kept).filter(|_| is_of_file),
            absent,
            columns: kept,
            order: self.order_of_past(),
            new_rows,
            starts,
            takes_history: self.takes_history(),
            scratch,
        };
        Ok(SeriesRows::new(opened, &spec, transform, self.sequence()))
    }

    /// Runs the query that makes the rows of the past, if there is one.
    async fn run_query(&mut self, scratch: &Scratch) -> Result<(), Error> {
        let Some(query) = &mut self.input.query else {
            return Ok(());
        };
        let made = query
            .run(&self.input.sources, self.context, scratch)
            .await?;
        self.input.made = vec![made];
        Ok(())
    }

    /// The tables of the dataset and the `new` rows, and those of them that get a prediction: with
    /// a file the new rows, even if none of them has landed.
    fn tables_with(
        &self,
        new: Option<Landed>,
        is_of_file: bool,
    ) -> Result<(Vec<Landed>, AskedRows), Error> {
        let mut tables = self.tables().to_vec();
        let asked = match (is_of_file, self.sequence()) {
            (true, _) => {
                let place = tables.len() as u64;
                tables.extend(new);
                AskedRows::Source(place)
            }
            (false, Some(sequence)) => AskedRows::Last(sequence.horizon.max(1) as usize),
            (false, None) => {
                let reason = "without windows, a row is predicted by its own columns, too: give a file of the rows to predict, or \
                              `-` for standard input";
                return Err(Error::config("dataset.sequence", reason));
            }
        };
        Ok((tables, asked))
    }

    /// Session of the engine that also reads the stores at `roots`.
    async fn session_of_past(
        &self,
        spec: &DatasetSpec,
        scratch: &Scratch,
        roots: Vec<Store>,
    ) -> Result<SessionContext, Error> {
        let session = session::session(
            self.context,
            &scratch.path("spill"),
            spec.inputs.len() + 1,
            None,
            self.joined_bytes(),
        )?;
        for root in roots {
            let (_, store, _) = root.object_store();
            let store = Arc::new(WithSuperseded(store));
            session.register_object_store(store_urls::url_of(&root)?.as_ref(), store);
        }
        Box::pin(join::limit_batches(&session, &spec.joins)).await?;
        Ok(session)
    }

    /// Columns of the entity, then the time.
    fn order_of_past(&self) -> Vec<String> {
        let series = self.spec.series.iter();
        let order = series.flat_map(|series| series.entity.iter().chain([&series.time]));
        order.cloned().collect()
    }

    /// Columns that are carried along: those of `keep`, the entity's, and the time. Those that only
    /// rejected rows have, which are named `rejected`, are texts without a value.
    fn kept_of(
        &self,
        keep: &[String],
        new: &[MergedColumn],
        rejected: &[String],
    ) -> Result<Vec<KeptColumn>, Error> {
        let mut all = self.input.columns.clone();
        let is_known = |name: &str, all: &[MergedColumn]| all.iter().any(|c| c.name == name);
        let rejected = rejected.iter().filter(|name| keep.contains(name));
        let rejected = rejected.map(|name| MergedColumn {
            name: name.clone(),
            r#type: ColumnType::Utf8,
        });
        for column in new.iter().cloned().chain(rejected) {
            if !is_known(&column.name, &all) {
                all.push(column);
            }
        }
        let series = self.spec.series.iter();
        let own = series.flat_map(|series| {
            let time = std::iter::once(&series.time).chain(&series.clock);
            series.entity.iter().chain(time)
        });
        let mut kept: Vec<KeptColumn> = Vec::new();
        for name in keep.iter().chain(own) {
            let found = find("--passthrough", name, &all)?;
            if kept.iter().all(|column| column.name != *name) {
                kept.push(KeptColumn {
                    name: name.clone(),
                    r#type: type_of_both(found, new),
                });
            }
        }
        Ok(kept)
    }

    /// The dataset as it is resolved, without splits, for rows without a target.
    async fn spec_of_past(&self, kept: Vec<KeptColumn>) -> Result<DatasetSpec, Error> {
        let mut config: DatasetConfig = self.dataset.clone();
        if let Some(frozen) = config.split.frozen().cloned()
            && !config.sources.is_empty()
        {
            config.sources.push(frozen);
        }
        config.split = SplitConfig {
            train: 1.0,
            validation: 0.0,
            test: 0.0,
            ..SplitConfig::default()
        };
        config.passthrough = Vec::new();
        let mut spec = DatasetSpec {
            joins: self.spec.joins.clone(),
            kept,
            requires_target: false,
            // Joins have added their columns.
            ..column_roles::resolve(&config, &self.input.columns)?
        };
        if let Some(expect) = &config.expect {
            spec.expect = Some(Expect::read(expect, &spec, self.context).await?);
        }
        Ok(spec)
    }
}

/// Names the sources of `series` as `tables` are, and the one of the rows that get a prediction, which
/// is the last one if it has rows.
fn name_sources(series: &mut Series, tables: &[Landed], asked: AskedRows) {
    let names = tables.iter().map(|table| table.reference.name.to_string());
    series.sources = names.collect();
    let AskedRows::Source(place) = asked else {
        return;
    };
    series.asked_source = Some(place);
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    if let Some(name) = series.sources.get_mut(place) {
        "new rows".clone_into(name);
    }
    let past = tables.get(..place).unwrap_or_default();
    let replaces = |table: &Landed| has_instants_as_keys(series, table);
    let all_replace = !past.is_empty() && past.iter().all(replaces);
    series.asked_replace_landed = all_replace;
}

/// Returns true if rows of one entity and one time have one key in `table`, and the one that lands last is
/// the latest version.
fn has_instants_as_keys(series: &Series, table: &Landed) -> bool {
    let is_of_instant = |name: &String| {
        series.entity.contains(name) || series.time == *name || series.clock.as_ref() == Some(name)
    };
    !table.key.is_empty() && table.version.is_none() && table.key.iter().all(is_of_instant)
}

/// Type of a landed column that also holds the values of the `new` rows: text if their type differs,
/// so that no value changes.
fn type_of_both(landed: &MergedColumn, new: &[MergedColumn]) -> ColumnType {
    let own = new.iter().find(|column| column.name == landed.name);
    match own.map(|own| own.r#type) {
        None | Some(ColumnType::Null) => landed.r#type,
        Some(own) if own == landed.r#type => own,
        Some(own) if landed.r#type == ColumnType::Null => own,
        Some(_) => ColumnType::Utf8,
    }
}

/// The rows of the plan by entity and time, those that are rejected among them.
async fn in_order_of_time(
    session: &SessionContext,
    tables: &[Landed],
    spec: &DatasetSpec,
) -> Result<DataFrame, Error> {
    let rows = plan::frame(session, tables, spec, None, false).await?.rows;
    let by_time = [
        time_series::ENTITY,
        time_series::TIME,
        system_columns::ORIGIN,
    ];
    let by_time = by_time.map(|name| ident(name).sort(true, false));
    Ok(rows.sort(Vec::from(by_time))?)
}

/// Checks that rows lack the columns that `joins` add: they are joined as in a build.
fn check_not_joined(joins: &[Join], rows: &Landed) -> Result<(), Error> {
    let schemas = rows.generations.iter();
    let own = landed_columns::merge(schemas.map(|generation| &generation.schema));
    let mut added = joins.iter().flat_map(Join::brought);
    match added.find(|added| own.iter().any(|column| column.name == added.name)) {
        None => Ok(()),
        Some(added) => Err(Error::input(
            "the rows to predict",
            format!(
                "they have column `{}`, which a join of the dataset adds",
                added.name
            ),
            "remove the column, so that the rows are joined as in a build",
        )),
    }
}

/// New rows have `needed` columns of the types that landed: a text in place of a number or a time would be read in another
/// way.
fn check_types(
    known: &[MergedColumn],
    new: &Landed,
    needed: &BTreeSet<String>,
) -> Result<(), Error> {
    let schemas = new.generations.iter();
    let new = landed_columns::merge(schemas.map(|generation| &generation.schema));
    for column in new.iter().filter(|column| needed.contains(&column.name)) {
        let Some(landed) = known.iter().find(|known| known.name == column.name) else {
            continue;
        };
        let (landed, found) = (landed.r#type, column.r#type);
        let is_one = landed == found
            || [landed, found].contains(&ColumnType::Null)
            || (landed.is_number() && found.is_number());
        if !is_one {
            return Err(Error::input(
                "the rows to predict",
                format!(
                    "column `{}` holds {} here, and {} where it landed",
                    column.name,
                    in_words(found),
                    in_words(landed)
                ),
                "write its values as those that have landed",
            ));
        }
    }
    Ok(())
}

fn in_words(column: ColumnType) -> &'static str {
    match column {
        ColumnType::Null => "nothing",
        ColumnType::Bool => "true and false",
        ColumnType::Int64 | ColumnType::Float64 | ColumnType::Decimal => "numbers",
        ColumnType::Timestamp => "timestamps",
        ColumnType::Utf8 => "text",
        ColumnType::Json => "JSON",
        ColumnType::Binary => "bytes",
        ColumnType::List
        | ColumnType::ListBool
        | ColumnType::ListInt64
        | ColumnType::ListFloat64
        | ColumnType::ListUtf8 => "lists",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passthrough_column_holds_the_values_of_landed_and_of_new_rows() {
        let column = |r#type| MergedColumn {
            name: "id".to_owned(),
            r#type,
        };
        let (null, int) = (ColumnType::Null, ColumnType::Int64);
        for (landed, new, expected) in [
            (int, None, int),
            (int, Some(int), int),
            (int, Some(null), int),
            (null, Some(int), int),
            (int, Some(ColumnType::Float64), ColumnType::Utf8),
        ] {
            let new: Vec<MergedColumn> = new.map(column).into_iter().collect();
            assert_eq!(type_of_both(&column(landed), &new), expected, "{landed:?}");
        }
    }
}
