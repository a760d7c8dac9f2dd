//! `feedline init`: a first look at data, and the pipeline that is written for it.

use std::{fs, mem, path::Path};

use anyhow::Context as _;
use feedline_ingest::SourcePreview;
use feedline_readers::remedy::Remedy;
use feedline_schemas::config::ContractConfig;

use super::{tools::Tools, work::PipelineWork};
use crate::{
    cli::{Init, Options, Pipeline},
    exit::{ErrorWithExample, Outcome},
    init::{self, ColumnRoles, Content, Hints, InitReport, Location, NumberFormat},
};

/// Most columns that `contract.max_columns` allows.
const MOST_COLUMNS: usize = 10_000;

/// Key of a setting of decimal commas.
const COMMA: &str = "decimal_separator";

/// A look at the data that `init` writes a pipeline for.
struct FirstLook<'a> {
    /// File to be written.
    file: &'a Path,
    json: bool,
    tools: &'a Tools,
}

impl<'a> FirstLook<'a> {
    fn work(
        &self,
        location: &Location,
        pagination: &init::Pagination,
    ) -> anyhow::Result<PipelineWork<'a>> {
        let pipeline = Pipeline {
            file: self.file.to_owned(),
            options: Options {
                set: Vec::new(),
                json: self.json,
            },
        };
        let text = init::source_text(location, pagination);
        PipelineWork::of_text(&text, &pipeline, self.tools)
    }

    /// Lines for the records and pages of an API, from its first response.
    async fn pagination(&self, location: &Location) -> anyhow::Result<init::Pagination> {
        let work = self.work(location, &init::Pagination::default())?;
        let suggested = feedline_ingest::suggest(&work.loaded.config, &work.inspecting()).await;
        let mut found = init::Pagination::default();
        for suggestion in suggested.map_err(|e| work.ingest_error(e))? {
            if let Some(error) = suggestion.error {
                let hint = match suggestion.is_denied {
                    true => token_hint(location),
                    false => "",
                };
                anyhow::bail!(
                    "`{}` cannot be read as an API of JSON: {error}{hint}",
                    location.url
                );
            }
            found = init::Pagination {
                pagination: suggestion.pagination,
                records: suggestion.records,
                reason: suggestion.reason,
            };
        }
        Ok(found)
    }

    async fn look(
        &self,
        location: &Location,
        pagination: &init::Pagination,
    ) -> anyhow::Result<SourcePreview> {
        let work = self.work(location, pagination)?;
        let (config, context) = (&work.loaded.config, work.inspecting());
        let previews = Box::pin(feedline_ingest::preview(config, None, 0, &context)).await;
        let mut previews = previews.map_err(|e| work.ingest_error(e))?;
        Ok(previews.remove(0))
    }

    /// Looks once more with each setting of `remedies`, and with those that the errors of these looks name, and
    /// returns the location and the preview with the most rows; none if no setting mends it.
    async fn look_with_remedies(
        &self,
        location: &Location,
        pagination: &init::Pagination,
        remedies: &[Remedy],
    ) -> anyhow::Result<Option<(Location, SourcePreview)>> {
        let mut best: Option<(Location, SourcePreview)> = None;
        let mut untried = init::with_remedies(remedies, location);
        while let Some(tried) = untried.pop() {
            let preview = self.look(&tried, pagination).await?;
            if preview.error.is_some() {
                // Lists are tried once, so that the search ends.
                if tried.records.is_none() {
                    untried.extend(init::with_remedies(&preview.remedies, &tried));
                }
                continue;
            }
            let is_better = |(_, best): &(Location, SourcePreview)| preview.rows >= best.rows;
            if !preview.columns.is_empty() && best.as_ref().is_none_or(is_better) {
                best = Some((tried, preview));
            }
        }
        Ok(best)
    }

    /// Looks into an archive without a table, whose members are images or texts; none if it has
    /// neither. `members` are the first of them.
    async fn look_into_archive(
        &self,
        location: &mut Location,
        pagination: &init::Pagination,
        members: &[String],
    ) -> anyhow::Result<Option<SourcePreview>> {
        let texts = init::named_texts(members);
        if texts > 0 {
            let of_texts = init::with_texts(location, members);
            let preview = self.look(&of_texts, pagination).await?;
            if init::texts_in(&preview) {
                *location = of_texts;
                return Ok(Some(preview));
            }
        }
        let mut look = location.clone();
        look.content = Content::Images { has_classes: false };
        let preview = self.look(&look, pagination).await?;
        // A few images beside texts are not the data.
        let images = init::with_images(location, &preview).filter(|_| preview.rows >= texts);
        Ok(images.map(|of_images| {
            *location = of_images;
            preview
        }))
    }

    /// Columns of a table, an API or an archive. The encoding, the list of records, numbers with a
    /// decimal comma and the members of an archive are noted in `location`.
    async fn preview(
        &self,
        location: &mut Location,
        pagination: &init::Pagination,
        target: Option<&str>,
    ) -> anyhow::Result<SourcePreview> {
        let mut preview = self.look(location, pagination).await?;
        let named = preview.remedies.clone();
        if location.content == Content::Table
            && let Some(found) = self
                .look_with_remedies(location, pagination, &named)
                .await?
        {
            (*location, preview) = found;
        }
        if preview.error.is_some()
            && location.is_archive()
            && let Some(members) = init::unread_members(&named)
            && let Some(found) = self
                .look_into_archive(location, pagination, members)
                .await?
        {
            return Ok(found);
        }
        if let Some(escaped) = with_escapes(location, &preview) {
            (*location, preview) = (escaped.clone(), self.look(&escaped, pagination).await?);
        }
        if let Some(all) = with_all_columns(location, &preview) {
            (*location, preview) = (all.clone(), self.look(&all, pagination).await?);
        }
        let mut with_points: Option<(Location, SourcePreview)> = None;
        for format in [NumberFormat::Comma, NumberFormat::GroupedComma] {
            let is_found = match format {
                NumberFormat::GroupedComma => preview.has_grouped_commas,
                _ => init::has_decimal_commas(&preview),
            };
            if !is_found {
                break;
            }
            let mut with_commas = location.clone();
            with_commas.number_format = format;
            let again = self.look(&with_commas, pagination).await?;
            if init::numbers(&again) > init::numbers(&preview) {
                let earlier = (
                    mem::replace(location, with_commas),
                    mem::replace(&mut preview, again),
                );
                with_points = with_points.or(Some(earlier));
            }
        }
        let mut kept_points = None;
        if let (Some(target), Some((points, earlier))) = (target, with_points)
            && init::is_number_column(&earlier, target)
            && !init::is_number_column(&preview, target)
        {
            (*location, preview) = (points, earlier);
            kept_points = Some(keep_decimal_points(&mut preview, target));
        }
        if let Some(numbers) = with_number_settings(location, &preview, target) {
            let again = self.look(&numbers, pagination).await?;
            if target.is_some_and(|target| init::is_number_column(&again, target)) {
                (*location, preview) = (numbers, again);
            }
        }
        location.open_numbers = kept_points.or_else(|| {
            init::describe_open_numbers(
                location.number_format,
                &location.number_settings,
                location.number_column.as_deref(),
                &preview,
            )
        });
        with_columns(location, preview)
    }
}

/// Removes the settings of decimal commas from a preview whose named `target` has decimal points, and says so.
fn keep_decimal_points(preview: &mut SourcePreview, target: &str) -> String {
    let with_commas = |settings: &[String]| settings.iter().any(|key| key.starts_with(COMMA));
    for column in &mut preview.columns {
        if with_commas(&column.number_settings) {
            column.number_settings.clear();
        }
    }
    format!(
        "`{target}` has decimal points, so `csv.decimal_separator` is not set, and numbers with a decimal comma in other columns \
         land as text; `try_cast(replace(COLUMN, ',', '.') as double)` in `dataset.sql` reads them where no cell has groups of \
         thousands"
    )
}

/// Returns a preview with columns.
fn with_columns(location: &Location, preview: SourcePreview) -> anyhow::Result<SourcePreview> {
    match &preview.error {
        Some(error) => {
            let advice = init::advice(&preview.remedies, location);
            let hint = match preview.is_denied {
                true => token_hint(location),
                false => "",
            };
            Err(ErrorWithExample(format!("{error}{hint}{advice}")).into())
        }
        None if preview.columns.is_empty() => {
            let why = init::rejected_note(&preview)
                .unwrap_or_else(|| "it is empty, or has a header line alone".to_owned());
            anyhow::bail!(
                "`{}` has no record with columns, so no pipeline can be written for it: {why}",
                location.url
            )
        }
        None => Ok(preview),
    }
}

/// The option that sends a token, for a location on the web that is read without one.
fn token_hint(location: &Location) -> &'static str {
    match location.bearer.is_none() && location.is_web() {
        true => "; `--bearer VARIABLE` sends a token",
        false => "",
    }
}

/// The location with the escape character of its quotes, if the preview found some behind a backslash.
fn with_escapes(location: &Location, preview: &SourcePreview) -> Option<Location> {
    let mut warnings = preview.warnings.iter();
    let is_found = warnings.any(|warning| warning.key.as_deref() == Some("csv.escape"));
    is_found.then(|| Location {
        has_escapes: true,
        ..location.clone()
    })
}

/// The location with the number of its columns, if a contract without settings rejects its rows for
/// them.
fn with_all_columns(location: &Location, preview: &SourcePreview) -> Option<Location> {
    let columns = preview.columns.len();
    let usual = ContractConfig::default().max_columns.get() as usize;
    let is_allowed = (usual + 1..=MOST_COLUMNS).contains(&columns);
    (preview.error.is_none() && is_allowed).then(|| Location {
        max_columns: Some(columns),
        ..location.clone()
    })
}

/// The location with the settings that read the text of the named target as numbers.
fn with_number_settings(
    location: &Location,
    preview: &SourcePreview,
    target: Option<&str>,
) -> Option<Location> {
    let mut columns = preview.columns.iter();
    let column = columns.find(|column| Some(column.name.as_str()) == target)?;
    (!column.number_settings.is_empty()).then(|| Location {
        number_column: Some(column.name.clone()),
        number_settings: column.number_settings.clone(),
        ..location.clone()
    })
}

/// Inspects the data and writes a pipeline for it.
pub(super) async fn run_init(options: &Init, tools: &Tools) -> anyhow::Result<Outcome> {
    let mut location = Location::new(&options.location)?;
    if let Some(file) = &options.to {
        location.name_after(file);
    }
    if options.bearer.is_some() && !location.is_web() {
        anyhow::bail!(
            "`--bearer` is for URLs of http and https, and `{}` is none; remove it",
            location.url
        );
    }
    location.bearer.clone_from(&options.bearer);
    let file = options.to.clone();
    let file = file.unwrap_or_else(|| format!("{}.toml", location.name).into());
    if file.exists() && !options.force {
        anyhow::bail!(
            "`{}` exists; choose another file by `--to`, or replace it by `--force`",
            file.display()
        );
    }
    let shown_file = file.display().to_string();
    let mut hints = Hints::default();
    let first_look = FirstLook {
        file: &file,
        json: options.json,
        tools,
    };
    if location.content == Content::Api {
        hints.pagination = first_look.pagination(&location).await?;
    }
    let mut previewed = match location.content {
        Content::Table | Content::Api => {
            let target = options.target.as_deref();
            let preview = first_look.preview(&mut location, &hints.pagination, target);
            Some(preview.await?)
        }
        _ => None,
    };
    let columns = match (&previewed, &location.content) {
        (Some(preview), Content::Table) => {
            Some(ColumnRoles::decide(preview, options.target.as_deref())?)
        }
        (Some(preview), Content::Api) => Some(match &options.target {
            Some(target) => ColumnRoles::decide(preview, Some(target))?,
            None => ColumnRoles::without_target(),
        }),
        _ => None,
    };
    if let (Some(preview), Some(columns)) = (&mut previewed, &columns) {
        let large = preview.warn_of_large_integers(|name| columns.reads_as_number(name));
        preview.warnings.extend(large);
    }
    hints.rows = previewed.as_ref().map_or(0, |preview| preview.rows);
    let text = init::text(&location, &shown_file, &hints, columns.as_ref());
    fs::write(&file, text).with_context(|| format!("cannot write `{shown_file}`"))?;
    let report = InitReport::new(
        shown_file,
        &location,
        previewed.as_ref(),
        &hints.pagination,
        columns,
    );
    tools.print(&report, options.json)?;
    Ok(Outcome::Done)
}
