//! Joins of the dataset, repeated for new rows.
//!
//! The joined sources are read as they have landed now, with the functions of the build. Only joins
//! that add an input of the transform, or a column that is carried along, are repeated: the target
//! of a new row is unknown.

mod lookup;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use datafusion::logical_expr::Expr;
use feedline_schemas::{
    config::{DatasetConfig, JoinConfig, PipelineConfig, SourceConfig},
    ids::Name,
    manifest::{JoinCounts, Manifest},
    record::ColumnType,
    transform::{InputKind, NumberSigns, TransformArtefact},
};
use tokio::runtime::Handle;

pub(super) use self::lookup::{JoinLookup, LookedUp};
use super::reader::landed::landed_columns_of;
use crate::{
    Context, Error,
    operators::{
        coerce::Missing,
        join::{self, Join, new_rows::LookupColumns},
        row_check::Judged,
    },
    pipeline::sources::columns_hash,
    schema::landed_columns::MergedColumn,
    source::landing_zone::Landed,
};

/// Joins of a dataset that add columns to new rows.
#[derive(Clone, Debug)]
pub struct RowJoins {
    /// Columns that are added.
    added: Arc<[AddedColumn]>,
    /// The joins, or the reason why they cannot be repeated.
    plan: Result<Arc<JoinPlan>, String>,
}

/// A column that a join adds to new rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddedColumn {
    pub(super) name: String,
    /// Kind of the input; `None` for a column that is carried along.
    kind: Option<InputKind>,
}

/// Joins that can be repeated.
#[derive(Debug)]
struct JoinPlan {
    joins: Vec<NewRowJoin>,
    /// Counts of all joins in the build, as the manifest has them.
    built: Vec<JoinCounts>,
    /// Types of the columns of the rows, and of those that joins add.
    landed: BTreeMap<String, ColumnType>,
    /// Null values of the inputs.
    missing: Missing,
    signs: Option<NumberSigns>,
    context: Context,
    runtime: Handle,
}

/// One join of new rows.
#[derive(Debug)]
struct NewRowJoin {
    join: Join,
    /// Column, reason and condition of a row without a match that gets no prediction.
    unmatched: Option<(String, Judged, Expr)>,
    columns: LookupColumns,
    /// Columns whose cells are compared: that of the rows, and that of the joined source.
    compared: [String; 2],
}

/// Finds the joins of the dataset that new rows need for the inputs of `artefact` and the columns
/// of `keep`. `None` if they need none.
///
/// A joined source that cannot be read is no error until a row needs it.
///
/// # Errors
/// Failures of the store.
pub async fn row_joins(
    config: &PipelineConfig,
    manifest: &Manifest,
    artefact: &TransformArtefact,
    keep: &[String],
    context: &Context,
) -> Result<Option<RowJoins>, Error> {
    let Some(dataset) = &config.dataset else {
        return Ok(None);
    };
    if dataset.join.is_empty() || dataset.sql.is_some() || dataset.files.is_some() {
        return Ok(None);
    }
    let joined = join::sources(dataset);
    let own = landed_columns_of(&context.root, manifest, |name| {
        !joined.iter().any(|joined| name.is_records_of(joined))
    });
    let own = own.await?;
    let wanted = WantedColumns { artefact, keep };
    let joins = async {
        check_settings(dataset, manifest)?;
        resolve_joins(dataset, &config.source, own.clone(), &wanted, context).await
    };
    let resolved = match Box::pin(joins).await {
        Ok(joins) => joins,
        Err(error) => return Ok(wanted.without_plan(dataset, &own, &error)),
    };
    if resolved.is_empty() {
        return Ok(None);
    }
    let added: Vec<&MergedColumn> = resolved.iter().flat_map(Join::brought).collect();
    let landed = own.iter().chain(added.iter().copied());
    let landed = landed.map(|column| (column.name.clone(), column.r#type));
    let plan = JoinPlan {
        landed: landed.collect(),
        missing: Missing::new(&artefact.null_values, &artefact.missing_values),
        signs: artefact.signs,
        context: context.clone(),
        runtime: Handle::current(),
        joins: joins_of_new_rows(&resolved)?,
        built: manifest.counts.joins.clone(),
    };
    Ok(Some(RowJoins {
        added: wanted.among(added.iter().map(|column| &column.name)),
        plan: Ok(Arc::new(plan)),
    }))
}

/// Checks that the dataset of `manifest` was built with these joins.
///
/// # Errors
/// [`Error::Config`] for other settings.
fn check_settings(dataset: &DatasetConfig, manifest: &Manifest) -> Result<(), Error> {
    let built = manifest.columns_hash;
    if built.is_none_or(|built| built == columns_hash(dataset)) {
        return Ok(());
    }
    let reason = "the dataset was built with other joins, or with another `series`, `feature`, `sequence`, `text` or `target`; \
                  rebuild it (`feedline shards build`), or use the configuration that it was built with";
    Err(Error::config("dataset.join", reason))
}

/// Checks the joins that may add a column of `wanted` against what has landed, and returns those
/// that do.
async fn resolve_joins(
    dataset: &DatasetConfig,
    sources: &[SourceConfig],
    mut columns: Vec<MergedColumn>,
    wanted: &WantedColumns<'_>,
    context: &Context,
) -> Result<Vec<Join>, Error> {
    let mut needed = wanted.names();
    let mut candidates: Vec<(usize, &JoinConfig)> = Vec::new();
    for (index, join) in dataset.join.iter().enumerate().rev() {
        let may_add = match added_names(join) {
            Some(names) => names.iter().any(|name| needed.contains(name)),
            None => true,
        };
        if may_add {
            candidates.push((index, join));
            let times = join.time.iter();
            let times = times.flat_map(|time| std::iter::once(&time.column).chain(&time.clock));
            needed.extend(join.left.iter().chain(times).cloned());
        }
    }
    if !candidates.is_empty() && columns.is_empty() {
        let reason = "the columns of its rows are unknown, because what they were built from is not in the landing zone";
        return Err(Error::config("dataset.join", reason));
    }
    let mut joins = Vec::new();
    for (index, join) in candidates.into_iter().rev() {
        let source = sources.iter().find(|source| source.name == join.source);
        let source = source.ok_or_else(|| {
            let reason = format!("there is no source `{}`", join.source);
            Error::config(format!("dataset.join.{index}.source"), reason)
        })?;
        let landed = Landed::read(&context.root, source, None).await?;
        let join = join::resolve_one(index, join, &columns, &landed)?;
        columns.extend(join.brought().cloned());
        joins.push(join);
    }
    Ok(keep_needed(joins, wanted.names()))
}

/// Keeps the joins that add a `needed` column, or one that such a join looks rows up by.
fn keep_needed(joins: Vec<Join>, mut needed: BTreeSet<String>) -> Vec<Join> {
    let mut kept = Vec::new();
    for join in joins.into_iter().rev() {
        if join.brought().any(|column| needed.contains(&column.name)) {
            needed.extend(join.needed().map(str::to_owned));
            kept.push(join);
        }
    }
    kept.reverse();
    kept
}

/// The joins as they read new rows.
fn joins_of_new_rows(joins: &[Join]) -> Result<Vec<NewRowJoin>, Error> {
    let each = joins.iter().enumerate().map(|(place, join)| {
        let earlier = || joins[..place].iter().flat_map(Join::brought);
        let is_joined = |name: &str| earlier().any(|column| column.name == name);
        let unmatched = join.judged();
        let compared = join.columns_compared().map(str::to_owned);
        let (join, columns) = join.for_new_rows(is_joined)?;
        Ok(NewRowJoin {
            join,
            unmatched,
            columns,
            compared,
        })
    });
    each.collect()
}

/// Names of the columns that `join` adds; `None` if they depend on its source.
fn added_names(join: &JoinConfig) -> Option<Vec<String>> {
    let names = join.columns.iter();
    let names = names.map(|name| format!("{}{name}", join.prefix));
    (!join.columns.is_empty()).then(|| names.chain(join.age.clone()).collect())
}

/// Columns that new rows need.
struct WantedColumns<'a> {
    artefact: &'a TransformArtefact,
    /// Columns that are carried along.
    keep: &'a [String],
}

impl WantedColumns<'_> {
    fn names(&self) -> BTreeSet<String> {
        let inputs = self.artefact.inputs.iter().map(|input| &input.name);
        inputs.chain(self.keep).cloned().collect()
    }

    /// The inputs and carried columns among `names`.
    fn among<'b>(&self, names: impl Iterator<Item = &'b String>) -> Arc<[AddedColumn]> {
        let names: BTreeSet<&String> = names.collect();
        let inputs = self.artefact.inputs.iter();
        let inputs = inputs.map(|input| (&input.name, Some(input.kind)));
        let all = inputs.chain(self.keep.iter().map(|name| (name, None)));
        let added = all.filter(|(name, _)| names.contains(name));
        let added = added.map(|(name, kind)| AddedColumn {
            name: name.clone(),
            kind,
        });
        added.collect()
    }

    /// Joins that cannot be repeated because of `error`: rows need all columns. The joined columns
    /// are those that the configuration names, or that the `own` columns of the rows lack.
    fn without_plan(
        &self,
        dataset: &DatasetConfig,
        own: &[MergedColumn],
        error: &Error,
    ) -> Option<RowJoins> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for join in &dataset.join {
            names.extend(
                added_names(join)
                    .into_iter()
                    .flatten()
                    .chain(join.age.clone()),
            );
        }
        if !own.is_empty() && dataset.join.iter().any(|join| join.columns.is_empty()) {
            let inputs = self.artefact.inputs.iter().map(|input| &input.name);
            let lacks = |name: &&String| own.iter().all(|column| column.name != **name);
            names.extend(inputs.filter(lacks).cloned());
        }
        let added = self.among(names.iter());
        (!added.is_empty()).then(|| RowJoins {
            added,
            plan: Err(error.to_string()),
        })
    }
}

impl AddedColumn {
    /// Returns true for an input of the transform.
    pub(super) fn is_input(&self) -> bool {
        self.kind.is_some()
    }
}

impl RowJoins {
    /// Types of the landed columns by name: those of the rows, and those that joins add. `None` if
    /// they are unknown.
    #[must_use]
    pub fn landed(&self) -> Option<&BTreeMap<String, ColumnType>> {
        self.plan.as_ref().ok().map(|plan| &plan.landed)
    }

    /// Columns that are added.
    pub(super) fn added(&self) -> &[AddedColumn] {
        &self.added
    }

    /// Columns that the joins look rows up by.
    pub(super) fn lookups(&self) -> Vec<LookupColumns> {
        let plan = self.plan.iter();
        let joins = plan.flat_map(|plan| &plan.joins);
        joins.map(|join| join.columns.clone()).collect()
    }

    /// Joined sources, in the order of the joins.
    pub(super) fn sources(&self) -> Vec<Name> {
        let plan = self.plan.iter();
        let joins = plan.flat_map(|plan| &plan.joins);
        joins.map(|join| join.join.name().clone()).collect()
    }

    /// Checks that the joins can be repeated for rows of `file`.
    ///
    /// # Errors
    /// [`Error::Input`] for joins that cannot.
    pub(super) fn check(&self, file: &str) -> Result<(), Error> {
        self.plan_for(file).map(|_| ())
    }

    fn plan_for(&self, file: &str) -> Result<&Arc<JoinPlan>, Error> {
        let mut names: Vec<&str> = Vec::new();
        for added in self.added.iter() {
            if !names.contains(&added.name.as_str()) {
                names.push(&added.name);
            }
        }
        self.plan.as_ref().map_err(|reason| {
            Error::input(
                format!("`{file}`"),
                format!(
                    "it lacks the joined columns `{}`, and they cannot be joined: {reason}",
                    names.join("`, `")
                ),
                "land the joined sources, or give the rows with these columns",
            )
        })
    }
}
