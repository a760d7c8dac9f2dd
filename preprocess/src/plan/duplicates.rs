//! Exact duplicates in the plan: one row of each content, and rows apart from those of a frozen source.

use datafusion::{
    functions_window::expr_fn::row_number,
    logical_expr::{Expr, ExprFunctionExt, Partitioning, ident, lit},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::config::DedupMode;

use crate::{
    Error,
    operators::{dedup::conflicts, split},
    schema::{dataset_spec::DatasetSpec, reject_reason, system_columns},
};

/// Hash and origin of all rows with a content, duplicates included, if duplicates are dropped.
pub(super) fn all_copies(rows: &DataFrame, spec: &DatasetSpec) -> Result<Option<DataFrame>, Error> {
    if spec.config.dedup != DedupMode::Exact {
        return Ok(None);
    }
    let columns = [system_columns::HASH, system_columns::ORIGIN].map(ident);
    let rows = match has_no_content(spec) {
        Some(has_none) => rows.clone().filter(has_none.is_not_true())?,
        None => rows.clone(),
    };
    Ok(Some(rows.select(columns)?))
}

/// All images with their content hashes and targets, where copies are dropped whatever their targets are.
pub(super) fn labelled_images(
    rows: &DataFrame,
    spec: &DatasetSpec,
) -> Result<Option<DataFrame>, Error> {
    let (Some(_), Some(target), DedupMode::Exact) =
        (&spec.payload, &spec.target, spec.config.dedup)
    else {
        return Ok(None);
    };
    let columns = [
        system_columns::HASH,
        system_columns::ORIGIN,
        system_columns::REJECT,
        target.column.as_str(),
    ];
    Ok(Some(rows.clone().select(columns.map(ident))?))
}

/// One row of each content, or all of them, as the configuration says; `with_copies` keeps all.
pub(super) fn drop_duplicates(
    session: &SessionContext,
    rows: DataFrame,
    spec: &DatasetSpec,
    with_copies: bool,
) -> Result<DataFrame, Error> {
    match spec.config.dedup {
        DedupMode::Exact if !with_copies => one_of_each_content(rows, spec),
        DedupMode::Exact | DedupMode::None => {
            let partitions = session.state().config().target_partitions();
            Ok(rows.repartition(Partitioning::RoundRobinBatch(partitions))?)
        }
    }
}

/// The rows and those of the frozen source, if there is one, where no row is in both.
pub(super) fn hold_out_frozen(
    rows: DataFrame,
    frozen: Option<DataFrame>,
    spec: &DatasetSpec,
) -> Result<DataFrame, Error> {
    let Some(frozen) = frozen else {
        return Ok(rows);
    };
    let frozen = match spec.config.dedup {
        DedupMode::Exact => one_of_each_content(frozen, spec)?,
        DedupMode::None => frozen,
    };
    split::apart(rows, frozen, !spec.config.split.key.is_empty())
}

fn one_of_each_content(rows: DataFrame, spec: &DatasetSpec) -> Result<DataFrame, Error> {
    let has_none = has_no_content(spec);
    match spec.conflicts() {
        Some(conflicts) => conflicts::settled(rows, conflicts, has_none),
        None => first_of_each_content(rows, has_none),
    }
}

/// Of the rows with one content keeps the one with the smallest origin that can be used, else that with the smallest
/// origin: columns beside the content may set one aside and not the other. Rows for which `has_no_content` is true are
/// duplicates of nothing. The engine sorts by hash, then by these, spilling where it must, so the choice depends neither on
/// memory nor on partitions.
fn first_of_each_content(
    rows: DataFrame,
    has_no_content: Option<Expr>,
) -> Result<DataFrame, Error> {
    const COPY: &str = "_copy";
    let names: Vec<Expr> = rows
        .schema()
        .fields()
        .iter()
        .map(|f| ident(f.name()))
        .collect();
    let rank = row_number()
        .partition_by(vec![ident(system_columns::HASH)])
        .order_by(vec![
            ident(system_columns::REJECT)
                .is_not_null()
                .sort(true, false),
            ident(system_columns::ORIGIN).sort(true, false),
        ])
        .build()?
        .alias(COPY);
    let is_first = ident(COPY).eq(lit(1u64));
    let is_kept = match has_no_content {
        Some(has_none) => is_first.or(has_none),
        None => is_first,
    };
    Ok(rows.window(vec![rank])?.filter(is_kept)?.select(names)?)
}

/// True for rows that are rejected for their image, before any is decoded, or for a document that is missing; nothing where
/// rows have neither.
fn has_no_content(spec: &DatasetSpec) -> Option<Expr> {
    let rejected_for = |reason: &str| {
        let reason = format!("{{\"reason\":\"{reason}\"%");
        ident(system_columns::REJECT).like(lit(reason))
    };
    let image = spec.image().map(|_| reject_reason::NOT_AN_IMAGE);
    let text = spec.document().map(|_| reject_reason::NO_TEXT);
    let reasons = image.into_iter().chain(text);
    reasons.map(rejected_for).reduce(Expr::or)
}
