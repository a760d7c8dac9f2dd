//! The dataset as one frame of typed rows with content hash, origin and split, duplicates dropped.

mod version_columns;

use datafusion::{
    functions_window::expr_fn::row_number,
    logical_expr::{Expr, ExprFunctionExt, Partitioning, ident, lit},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    config::{DedupMode, SplitConfig},
    manifest::{ConflictCounts, NearDupCounts, Split},
};

use self::version_columns::Reading;
use crate::{
    Error, conflicts,
    content::Cells,
    dataset_spec::DatasetSpec,
    join,
    landed_cells::{content_hash, parent},
    landed_scan::read,
    landing::Landed,
    near_dup,
    newest::{self, Newest},
    payload::{Part, Payload, PayloadKind},
    range::{Borders, ByPlace, Embargo},
    scalar::RowFunction,
    series::Series,
    signs,
    split::{self, Rule, code},
    system_columns,
    typing::{Missing, NanSeen},
};

/// The rows of a dataset.
pub(crate) struct Frame {
    /// As [`frame`] says.
    pub(crate) rows: DataFrame,
    /// The documents that are kept, each whole, in the column of the payload.
    pub(crate) documents: Option<DataFrame>,
    /// Counts of the search for near-duplicates.
    pub(crate) near_dup: Option<NearDupCounts>,
    /// Hash and origin of all rows, duplicates included, if duplicates are dropped.
    pub(crate) copied: Option<DataFrame>,
    /// Rows that are equal but for their target, where one of them is chosen.
    pub(crate) conflicts: Option<ConflictCounts>,
    /// Note of a NaN that was read as a number, once the rows are read on this machine.
    pub(crate) nan: NanSeen,
    /// All images with their content hashes and targets, where copies are dropped whatever their targets are.
    pub(crate) labelled: Option<DataFrame>,
}

/// All rows: `_origin`, `_hash`, `_split`, `_reject`, `_group` where the split has a key, then payload, inputs and target.
/// `with_copies` leaves duplicates among them, for a pass that finds them itself.
pub(crate) async fn frame(
    session: &SessionContext,
    sources: &[Landed],
    spec: &DatasetSpec,
    near_dup: Option<&near_dup::Pass<'_>>,
    with_copies: bool,
) -> Result<Frame, Error> {
    let (mut all, mut frozen): (Option<DataFrame>, Option<DataFrame>) = (None, None);
    let nan = NanSeen::default();
    let missing = Missing::new(&spec.config.null_values, &spec.config.missing_values).noting(&nan);
    for (index, source) in sources.iter().enumerate() {
        let is_frozen = spec.config.split.frozen() == Some(&source.reference.name);
        let newest = Newest::of(source)?;
        let mut own: Option<DataFrame> = None;
        for generation in &source.generations {
            let schema = join::extended(&generation.schema, &spec.joins);
            let reading = Reading {
                schema: &schema,
                spec,
                is_frozen,
                missing: missing.clone(),
                signs: signs::of(&spec.config),
            };
            let rows = read(session, source, generation)?;
            let rows = join::beside(session, rows, &generation.schema, &spec.joins)?;
            let rows = reading.prepared(rows)?;
            let mut columns = reading.columns(index as u64)?;
            if let Some(newest) = &newest {
                columns.extend(newest.columns(&generation.schema)?);
            }
            if source.records.is_some() {
                columns.push(parent().alias(newest::RECORD));
            }
            let rows = rows.select(columns)?;
            own = Some(match own {
                Some(above) => above.union(rows)?,
                None => rows,
            });
        }
        let Some(own) = own else { continue };
        let own = match newest {
            Some(newest) => newest.keep(own)?,
            None => own,
        };
        let own = match &source.records {
            Some(records) => newest::of_newest(session, own, records)?,
            None => own,
        };
        let part = if is_frozen { &mut frozen } else { &mut all };
        *part = Some(match part.take() {
            Some(above) => above.union(own)?,
            None => own,
        });
    }
    let all = all.expect("a landed source has at least one row, so at least one file");
    let copied = (spec.config.dedup == DedupMode::Exact)
        .then(|| {
            all.clone().select(vec![
                ident(system_columns::HASH),
                ident(system_columns::ORIGIN),
            ])
        })
        .transpose()?;
    let conflicts = match spec.conflicts() {
        Some((target, _)) => Some(
            Box::pin(conflicts::count(all.clone(), target))
                .await?
                .counts,
        ),
        None => None,
    };
    let labelled = match (&spec.payload, &spec.target, spec.config.dedup) {
        (Some(_), Some(target), DedupMode::Exact) => Some(all.clone().select(vec![
            ident(system_columns::HASH),
            ident(system_columns::ORIGIN),
            ident(system_columns::REJECT),
            ident(&target.column),
        ])?),
        _ => None,
    };
    let one_of_each = |rows: DataFrame| match spec.conflicts() {
        Some((target, how)) => conflicts::settled(rows, target, how),
        None => first_of_each_content(rows),
    };
    let rows = match spec.config.dedup {
        DedupMode::Exact if !with_copies => one_of_each(all)?,
        DedupMode::Exact | DedupMode::None => {
            let partitions = session.state().config().target_partitions();
            all.repartition(Partitioning::RoundRobinBatch(partitions))?
        }
    };
    let rows = match frozen {
        Some(frozen) => {
            let frozen = match spec.config.dedup {
                DedupMode::Exact => one_of_each(frozen)?,
                DedupMode::None => frozen,
            };
            split::apart(rows, frozen, !spec.config.split.key.is_empty())?
        }
        None => rows,
    };
    let (rows, near_dup) = match near_dup {
        Some(pass) => {
            let (rows, found) = pass.run(session, rows).await?;
            (rows, Some(found))
        }
        None => (rows, None),
    };
    // Features of series neither add nor drop a row, and are not worth making to count them.
    let text = spec.payload.as_ref();
    let text = text.filter(|payload| payload.kind == PayloadKind::Text);
    let count = match (&spec.rule, text) {
        (Rule::Range, None) => rows.clone().count().await? as u64,
        _ => 0,
    };
    let rows = match &spec.series {
        Some(series) => expected_of_made(series.onto(session, rows)?, spec, series)?,
        None => rows,
    };
    let Some(text) = text else {
        return Ok(Frame {
            rows: match &spec.rule {
                Rule::Hash | Rule::Named(_) => rows,
                Rule::Range => in_order(rows, &spec.config.split, count)?,
                Rule::Time(time) => time.split(rows).await?,
            },
            documents: None,
            near_dup,
            copied,
            conflicts,
            nan,
            labelled,
        });
    };
    let rows = match &spec.rule {
        Rule::Time(time) => time.split(rows).await?,
        Rule::Hash | Rule::Named(_) | Rule::Range => rows,
    };
    let documents = rows
        .clone()
        .filter(ident(system_columns::REJECT).is_null())?;
    let documents = documents.select(vec![ident(&text.column)])?;
    Ok(Frame {
        rows: match &spec.rule {
            Rule::Range => parts(&rows, spec, text)?,
            Rule::Hash | Rule::Named(_) | Rule::Time(_) => rows,
        },
        documents: Some(documents),
        near_dup,
        copied,
        conflicts,
        nan,
        labelled,
    })
}

/// `rows`, with those rejected whose generated features violate expectations.
fn expected_of_made(
    rows: DataFrame,
    spec: &DatasetSpec,
    series: &Series,
) -> Result<DataFrame, Error> {
    let expect = spec.expect.as_ref();
    let Some((judge, judged)) = expect.and_then(|expect| expect.rows(|name| series.makes(name)))
    else {
        return Ok(rows);
    };
    let cells = judged.iter().map(|column| ident(&column.name));
    let arguments: Vec<Expr> = std::iter::once(ident(system_columns::REJECT))
        .chain(cells)
        .collect();
    let reject = judge.over(arguments).alias(system_columns::REJECT);
    let columns = rows.schema().fields().iter();
    let columns = columns.map(|field| match field.name().as_str() {
        system_columns::REJECT => reject.clone(),
        name => ident(name),
    });
    let columns: Vec<Expr> = columns.collect();
    Ok(rows.select(columns)?)
}

/// The rows with the split that their place among all of them gives, in the order they landed.
fn in_order(rows: DataFrame, split: &SplitConfig, count: u64) -> Result<DataFrame, Error> {
    const PLACE: &str = "_place";
    let borders = Borders::new(split, count);
    let columns: Vec<Expr> = rows
        .schema()
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            system_columns::SPLIT => ByPlace(borders)
                .over(vec![ident(PLACE)])
                .alias(system_columns::SPLIT),
            system_columns::REJECT => Embargo(borders)
                .over(vec![ident(system_columns::REJECT), ident(PLACE)])
                .alias(system_columns::REJECT),
            name => ident(name),
        })
        .collect();
    let place = row_number()
        .order_by(vec![ident(system_columns::ORIGIN).sort(true, false)])
        .build()?
        .alias(PLACE);
    Ok(rows.window(vec![place])?.select(columns)?)
}

/// Every document as a row per part, with the content hash of that part. A rejected document is one
/// row.
fn parts(rows: &DataFrame, spec: &DatasetSpec, text: &Payload) -> Result<DataFrame, Error> {
    let mut all: Option<DataFrame> = None;
    for split in Split::ALL {
        let part = Part::new(&spec.config.split, split).over(vec![ident(&text.column)]);
        let is_there = ident(&text.column).is_not_null();
        let bad = ident(system_columns::REJECT).is_not_null();
        let kept = match split {
            Split::Train => is_there.or(bad),
            _ => is_there.and(bad.is_false()),
        };
        let hash = content_hash(std::iter::once(text.column.as_str()), Cells::Typed);
        let mut there = vec![
            ident(system_columns::ORIGIN),
            ident(system_columns::REJECT),
            part.alias(&text.column),
        ];
        let mut columns = vec![
            ident(system_columns::ORIGIN),
            hash.alias(system_columns::HASH),
            lit(code(split)).alias(system_columns::SPLIT),
            ident(system_columns::REJECT),
            ident(&text.column),
        ];
        if spec.config.text.is_some() {
            // A document counts once, with the part that each has.
            let count = match split {
                Split::Train => ident(system_columns::REDACTED),
                _ => lit(0_u64),
            };
            there.push(count.alias(system_columns::REDACTED));
            columns.push(ident(system_columns::REDACTED));
        }
        let part = rows.clone().select(there)?.filter(kept)?.select(columns)?;
        all = Some(match all {
            Some(above) => above.union(part)?,
            None => part,
        });
    }
    Ok(all.expect("there are three splits"))
}

/// Of the rows with one content keeps the one with the smallest origin that can be used, else that with the smallest
/// origin: columns beside the content may set one aside and not the other. The engine sorts by hash, then by these,
/// spilling where it must, so the choice depends neither on memory nor on partitions.
fn first_of_each_content(rows: DataFrame) -> Result<DataFrame, Error> {
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
    Ok(rows
        .window(vec![rank])?
        .filter(ident(COPY).eq(lit(1u64)))?
        .select(names)?)
}
