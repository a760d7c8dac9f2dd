//! The text of a pipeline file.

use super::{
    ColumnRoles, Dropped,
    location::{Content, Location},
    table::missing_targets,
};
use crate::output::shell_word;

/// Shorter side in pixels that larger images are stored with, and side that is trained on.
const STORED_SIDE: u32 = 72;
const TRAINED_SIDE: u32 = 64;
/// Smallest side that the model accepts.
const MIN_SIDE: u32 = 16;
/// Rows up to which a training takes small batches and more epochs.
const FEW_ROWS: u64 = 5_000;

/// Suggested lines of `[[source]]` from the first response of an API.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pagination {
    /// `pagination = {...}`.
    pub(crate) pagination: Option<String>,
    /// `records = "..."`.
    pub(crate) records: Option<String>,
    /// Reason for them.
    pub(crate) reason: Option<String>,
}

impl Pagination {
    /// The guess about the pages of an API, with the key that changes it.
    pub(crate) fn decision(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        Some(match &self.pagination {
            Some(line) => format!(
                "the pages are guessed from the first response: `{line}`, because {reason}; `source.pagination` changes it, see the API's \
                 documentation"
            ),
            None => format!("one page is read, because {reason}; `source.pagination` reads more"),
        })
    }
}

/// Facts for the comments and for the size of the training.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hints {
    /// Number of examined rows.
    pub(crate) rows: u64,
    pub(crate) pagination: Pagination,
}

/// `[pipeline]` and `[[source]]`: enough to preview the source.
pub(crate) fn source_text(location: &Location, pagination: &Pagination) -> String {
    let Location {
        url,
        content,
        name,
        bearer,
        number_format,
        records,
        number_column,
        open_numbers,
        max_columns,
        left_out,
        ..
    } = location;
    let (kind, format) = match content {
        Content::Api => ("rest", None),
        Content::Table => ("files", None),
        Content::Images { .. } => ("files", Some("image")),
        Content::Texts { .. } => ("files", Some("text")),
    };
    let mut lines = vec![
        "[pipeline]".to_owned(),
        format!("name = {}", quoted(name)),
        String::new(),
        "[[source]]".to_owned(),
        format!("name = {}", quoted(name)),
        format!("type = {}", quoted(kind)),
    ];
    lines.extend(format.map(|format| format!("format = {}", quoted(format))));
    lines.extend(
        left_out
            .as_deref()
            .map(|text| format!("# {}", one_line(text))),
    );
    lines.push(format!("url = {}", quoted(url)));
    if let Some(variable) = bearer {
        lines.push(format!(
            "auth = {{ type = \"bearer\", secret = {{ env = {} }} }}",
            quoted(variable)
        ));
    }
    if number_format.keys().is_some() {
        lines.push("# Numbers are written with a decimal comma.".to_owned());
    }
    lines.extend(
        number_column
            .as_deref()
            .map(|column| format!("# So that `{}` is read as numbers.", column.escape_debug())),
    );
    let open_numbers = open_numbers.as_deref();
    lines.extend(open_numbers.map(|text| format!("# {}", one_line(text))));
    let keys = csv_keys(location);
    if !keys.is_empty() {
        lines.push(format!("csv = {{ {} }}", keys.join(", ")));
    }
    if let Some(columns) = max_columns {
        lines.push(
            "# All columns of the table: the limit is for names of columns that are data."
                .to_owned(),
        );
        lines.push(format!("contract = {{ max_columns = {columns} }}"));
    }
    lines.extend(
        records
            .as_deref()
            .map(|path| format!("records = {}", quoted(path))),
    );
    lines.extend(pagination.records.clone());
    if let Some(reason) = &pagination.reason {
        lines.push(format!("# {}", one_line(reason)));
    }
    lines.extend(pagination.pagination.clone());
    lines.join("\n") + "\n"
}

/// Keys of `csv` with their values.
fn csv_keys(location: &Location) -> Vec<String> {
    let encoding = location.encoding.as_deref();
    let encoding = encoding.map(|label| format!("encoding = {}", quoted(label)));
    let escape = location
        .has_escapes
        .then(|| format!("escape = {}", quoted("\\")));
    let format = location.number_format.keys().map(ToOwned::to_owned);
    let keys = encoding.into_iter().chain(escape);
    let numbers = location.number_settings.iter().cloned();
    keys.chain(format).chain(numbers).collect()
}

/// Returns the complete file, with comments.
pub(crate) fn text(
    location: &Location,
    file: &str,
    hints: &Hints,
    columns: Option<&ColumnRoles>,
) -> String {
    let next = match location.content.trains(columns) {
        true => "run",
        false => "ingest",
    };
    let file = shell_word(file);
    let mut out = format!(
        "# Written by `feedline init`. `feedline explain KEY` explains a key. For completion in an editor:\n\
         # feedline schema > pipeline.schema.json, with `#:schema ./pipeline.schema.json` as the first line here.\n\
         #\n\
         #     feedline check {file}\n\
         #     feedline {next} {file}\n\n"
    );
    out += &source_text(location, &hints.pagination);
    if location.content == Content::Api {
        if location.bearer.is_none() {
            out += "# Credentials come from the environment:\n\
                    # auth = { type = \"bearer\", secret = { env = \"API_TOKEN\" } }\n";
        }
        out += "# Read the API every hour under `feedline serve`:\n\
                # schedule = { every_s = 3600 }\n\
                # A later run sends no request unless one of these says what is new:\n\
                # refresh = \"if_changed\"\n\
                # `lookback` requests the last day once more, for records that appear late; those that have landed\n\
                # are dropped as duplicates:\n\
                # incremental = { cursor = \"updated_at\", param = \"since\", start = \"2026-01-01\", lookback = \"1d\" }\n\
                # Rows with the same key are versions of one record; the newest is used. `dataset.split.key` with the same\n\
                # columns keeps all versions in one split:\n\
                # key = [\"id\"]\n";
    }
    match (&location.content, columns) {
        (Content::Table | Content::Api, Some(columns)) => out += &table_text(hints, columns),
        (Content::Images { has_classes: true }, _) => out += &images_text(location),
        (Content::Images { has_classes: false }, _) => {
            out += &with_unlabelled(IMAGES_WITHOUT_CLASSES, location);
        }
        (Content::Texts { is_single: true }, _) => out += ONE_TEXT,
        (Content::Texts { is_single: false }, _) => out += TEXTS,
        (Content::Table | Content::Api, None) => {}
    }
    out
}

fn table_text(hints: &Hints, columns: &ColumnRoles) -> String {
    let ColumnRoles {
        target,
        is_class,
        dropped,
        time,
        dates,
        entity,
        decisions,
        missing_targets,
        one_valued,
        text,
        images,
    } = columns;
    let said = decisions
        .iter()
        .map(|decision| format!("# {}\n", one_line(decision)));
    let said: String = said.collect();
    if let Some(text) = text {
        let lines = format!("kind = \"tokens\"\ncontent = {}\n", quoted(text));
        return TEXTS
            .replace("[dataset]\n", &format!("[dataset]\n{said}"))
            .replace("kind = \"tokens\"\n", &lines);
    }
    if let Some(content) = images {
        return image_table_text(content, &said, columns);
    }
    let Some(target) = target else {
        return format!(
            "\n{said}# To train a model, name the column that it predicts:\n\
             # [dataset]\n# target = \"COLUMN\"\n#\n# [train]\n# model = {{ type = \"mlp\" }}\n"
        );
    };
    let mut out = format!("\n[dataset]\n{said}target = {}\n", quoted(target));
    if *is_class {
        out += "task = \"classification\"\n";
    }
    out += &missing_targets.map_or_else(String::new, reject_limit_text);
    // The key of the split is no feature by itself.
    let is_key = |dropped: &&Dropped| entity.as_ref() == Some(&dropped.column);
    let mut listed = dropped.iter().filter(|dropped| !is_key(dropped)).peekable();
    if listed.peek().is_some() {
        out += "# No features:\ndrop = [\n";
        for dropped in listed {
            out += &format!("    {},  # {}\n", quoted(&dropped.column), dropped.reason);
        }
        out += "]\n";
    }
    out += &indicator_steps(one_valued);
    out += "# Everything fitted (imputation, caps, means, categories) is fitted on the training split alone.\n";
    match entity {
        Some(entity) => {
            out += &format!(
                "# Rows of one {} share a split.\nsplit = {{ train = 0.8, validation = 0.1, test = 0.1, key = [{}] }}\n",
                one_line(entity),
                quoted(entity)
            );
        }
        None => out += "split = { train = 0.8, validation = 0.1, test = 0.1 }\n",
    }
    if let Some(time) = time {
        out += &newest_rows_text(time, dates.as_deref());
    }
    let (batch, epochs) = match hints.rows {
        0..FEW_ROWS => (32, 60),
        _ => (256, 30),
    };
    out += &format!(
        "\n[train]\nmodel = {{ type = \"mlp\", hidden = [128, 64], dropout = 0.05 }}\nbatch_size = {batch}\n\
         # At most; it ends when the validation loss has not improved for `patience` epochs.\n\
         epochs = {epochs}\npatience = 10\nlearning_rate = 0.003\n"
    );
    out
}

/// The default steps after one that marks missing cells of the columns `one_valued`; empty without such columns.
fn indicator_steps(one_valued: &[String]) -> String {
    if one_valued.is_empty() {
        return String::new();
    }
    let columns: Vec<String> = one_valued.iter().map(|column| quoted(column)).collect();
    format!(
        "# These columns have one value or are missing: the indicator is 1 where a cell is missing. The other steps are the default\n\
         # ones; categories follow them.\n\
         step = [\n    {{ type = \"impute\", indicator = true, columns = [{}] }},\n    {{ type = \"impute\" }},\n    \
         {{ type = \"winsorize\" }},\n    {{ type = \"standardize\" }},\n]\n",
        columns.join(", ")
    )
}

/// The commented split that validates and tests on the newest rows, with the setting that makes `time` a time.
fn newest_rows_text(time: &str, dates: Option<&str>) -> String {
    let set = dates.map(|setting| format!(", with `{}` in `[[source]]`", one_line(setting)));
    format!(
        "# To validate and test on the newest rows instead{}:\n\
         # split = {{ by = \"time\", time = {}, train = 0.8, validation = 0.1, test = 0.1 }}\n",
        set.unwrap_or_default(),
        quoted(time)
    )
}

/// `max_reject_fraction` where a fraction of the rows has no target.
fn reject_limit_text((missing, limit): (f64, f64)) -> String {
    format!(
        "# Rows without a target are rejected ({:.0} % of those looked at); a larger share stops the build.\nmax_reject_fraction = {limit}\n",
        missing * 100.0
    )
}

/// `[dataset]` with these `comments`, and `[train]`, for a table with image files in the column
/// `content`.
fn image_table_text(content: &str, comments: &str, columns: &ColumnRoles) -> String {
    let mut out = format!(
        "\n[dataset]\n{comments}kind = \"images\"\ncontent = {}\n",
        quoted(content)
    );
    let image = stored_images(None);
    let Some(target) = &columns.target else {
        let target = "# To train a model, name the column that it predicts, and add `[train]`:\n# target = \"COLUMN\"\n";
        return out + &image + target;
    };
    out += &format!("target = {}\n", quoted(target));
    if columns.is_class {
        out += "task = \"classification\"\n";
    }
    let limit = columns.missing_targets;
    out += &limit.map_or_else(String::new, reject_limit_text);
    out + &image + &image_training(None)
}

/// Sides in pixels that images are stored and trained with, for a shorter side of about `side`.
pub(super) fn image_sides(side: Option<u32>) -> (u32, u32) {
    match side {
        Some(side) if side < STORED_SIDE => (side.max(MIN_SIDE), side.max(MIN_SIDE)),
        _ => (STORED_SIDE, TRAINED_SIDE),
    }
}

/// `[dataset]` and `[train]` for images in a folder for each class.
fn images_text(location: &Location) -> String {
    let side = location.shorter_side;
    let unlabelled = location.unlabelled.as_ref();
    let limit = unlabelled.and_then(|images| missing_targets(images.count, images.all));
    let limit = limit.map_or_else(String::new, reject_limit_text);
    let dataset = with_unlabelled(FOLDER_CLASSES, location);
    dataset + &limit + &stored_images(side) + &image_training(side)
}

/// The `dataset` of images with a comment about those in no folder, if there are any.
fn with_unlabelled(dataset: &str, location: &Location) -> String {
    let Some(images) = &location.unlabelled else {
        return dataset.to_owned();
    };
    let section = format!("[dataset]\n# {}\n", one_line(&images.decision()));
    dataset.replacen("[dataset]\n", &section, 1)
}

/// The key `image` for images whose shorter side has about `side` pixels.
fn stored_images(side: Option<u32>) -> String {
    let (stored, _) = image_sides(side);
    let measured = match side {
        Some(side) => format!(" from a shorter side of about {side} pixels to {stored}"),
        None => String::new(),
    };
    STORED_IMAGES
        .replace("{measured}", &measured)
        .replace("{stored}", &stored.to_string())
}

/// `[train]` for images whose shorter side has about `side` pixels.
fn image_training(side: Option<u32>) -> String {
    let (_, trained) = image_sides(side);
    IMAGE_TRAINING.replace("{trained}", &trained.to_string())
}

const FOLDER_CLASSES: &str = "
[dataset]
kind = \"images\"
# The name of the folder above an image is its class.
target = \"folder\"
task = \"classification\"
";

const STORED_IMAGES: &str = "\
# Images are turned upright, resized{measured} and stored as JPEG; an image and its resized copies share a split.
image = { store = \"jpeg\", resize = \"shorter_side\", size = {stored}, duplicates = \"perceptual\" }
";

const IMAGE_TRAINING: &str = "
[train]
model = { type = \"cnn\", channels = [32, 64, 128], hidden = [128], dropout = 0.3 }
images = { height = {trained}, width = {trained}, augment = true }
batch_size = 32
# At most; it ends when the validation loss has not improved for `patience` epochs.
epochs = 20
patience = 5
learning_rate = 0.002
";

const IMAGES_WITHOUT_CLASSES: &str = "
[dataset]
kind = \"images\"
# Images are turned upright, made smaller and stored as JPEG; an image and its resized copies share a split.
image = { store = \"jpeg\", resize = \"shorter_side\", size = 224, duplicates = \"perceptual\" }
# To train a classifier, put the images in a folder for each class and add
# target = \"folder\"
# task = \"classification\"
# or join a table of labels: see examples/images/labelled-photos.toml.
";

const ONE_TEXT: &str = "
[dataset]
# A model of characters; their ids are fitted on the training part alone.
kind = \"characters\"
# One long text: the first nine tenths are for training.
split = { by = \"range\", train = 0.9, validation = 0.05, test = 0.05 }

[train]
model = { type = \"transformer\", layers = 2, width = 64, heads = 4, context = 64 }
batch_size = 16
# At most; it ends when the validation loss has not improved for `patience` epochs.
epochs = 10
patience = 3
learning_rate = 0.003
schedule = { warmup_steps = 100 }
optimizer = { type = \"adamw\", beta2 = 0.99, weight_decay = 0.1 }
";

const TEXTS: &str = "
[dataset]
# Tokens of a tokenizer that is trained on the training split alone.
kind = \"tokens\"
# Documents that share four fifths of their runs of five words are duplicates; the first is kept.
near_dup = { threshold = 0.8 }
tokens = { vocabulary = 1024, window = 64 }

[train]
model = { type = \"transformer\", layers = 2, width = 64, heads = 4 }
batch_size = 16
# At most; it ends when the validation loss has not improved for `patience` epochs.
epochs = 10
patience = 3
learning_rate = 0.003
schedule = { warmup_steps = 50 }
optimizer = { type = \"adamw\", beta2 = 0.99, weight_decay = 0.1 }
";

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::{
        super::{NumberFormat, location::UnlabelledImages},
        *,
    };

    #[test]
    fn small_images_keep_their_size_and_large_ones_are_bounded() {
        let sides = [None, Some(9), Some(28), Some(71), Some(72), Some(4000)];
        let expected = [(72, 64), (16, 16), (28, 28), (71, 71), (72, 64), (72, 64)];
        assert_eq!(sides.map(image_sides), expected);
    }

    #[test]
    fn the_proposed_incremental_reading_has_a_lookback() {
        let location = Location::new("https://a.org/v1/items").unwrap();
        let text = text(&location, "p.toml", &Hints::default(), None);
        let text = text.replace("# incremental", "incremental");
        let source = load("p.toml", &text, &[]).unwrap().config.source.remove(0);
        assert_eq!(source.incremental.unwrap().lookback, "1d");
    }

    #[test]
    fn an_api_without_a_target_gets_the_reason_and_the_lines_to_add() {
        let location = Location::new("https://a.org/v1/items").unwrap();
        let columns = ColumnRoles::without_target();
        let text = text(&location, "p.toml", &Hints::default(), Some(&columns));
        let config = load("p.toml", &text, &[]).unwrap().config;
        assert!(config.dataset.is_none() && config.train.is_none(), "{text}");
        for line in [
            "\n# no `[dataset]` and no `[train]` are written, because",
            "\n# [dataset]\n# target = \"COLUMN\"\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn images_in_no_folder_are_a_comment_and_raise_the_limit_of_rejects() {
        for (has_classes, all) in [(true, 12), (false, 2)] {
            let unlabelled = UnlabelledImages {
                count: 1,
                all,
                example: Some("6\n.jpg".to_owned()),
            };
            let content = Content::Images { has_classes };
            let location = Location {
                unlabelled: Some(unlabelled.clone()),
                ..Location::plain("photos", content, "photos".to_owned())
            };
            let text = text(&location, "p.toml", &Hints::default(), None);
            let comment = format!("\n# {}\n", one_line(&unlabelled.decision()));
            assert!(text.contains(&comment), "{text}");
            let dataset = load("p.toml", &text, &[]).unwrap().config.dataset.unwrap();
            let limit = dataset.max_reject_fraction.map(|limit| limit.get());
            assert_eq!(limit, has_classes.then_some(0.18), "{text}");
        }
    }

    #[test]
    fn every_kind_of_pipeline_loads() {
        let columns = ColumnRoles {
            target: Some("y \"quoted\"".into()),
            is_class: true,
            dropped: vec![Dropped {
                column: "a\tb".into(),
                reason: "bytes".into(),
            }],
            time: Some("when".into()),
            entity: Some("who\nelse".into()),
            dates: Some("contract.dates = [\"%d/%m/%Y\"]".into()),
            decisions: vec!["`y`\nis a class".into()],
            missing_targets: Some((0.25, 0.4)),
            one_valued: vec!["vip \"1\"".into(), "on".into()],
            text: None,
            images: None,
        };
        let of_texts = ColumnRoles {
            text: Some("the \"text\"".into()),
            ..ColumnRoles::default()
        };
        let of_images = ColumnRoles {
            images: Some("the \"image\".bytes".into()),
            ..columns.clone()
        };
        let of_unlabelled = ColumnRoles {
            target: None,
            is_class: false,
            ..of_images.clone()
        };
        let contents = [
            Content::Table,
            Content::Api,
            Content::Images { has_classes: true },
            Content::Images { has_classes: false },
            Content::Texts { is_single: true },
            Content::Texts { is_single: false },
        ];
        for content in contents {
            let location = Location {
                url: "https://a.org/it's \"x\"".into(),
                content: content.clone(),
                name: "data".into(),
                shorter_side: Some(28),
                bearer: (content == Content::Api).then(|| "TOKEN".into()),
                number_format: match content == Content::Table {
                    true => NumberFormat::GroupedComma,
                    false => NumberFormat::Point,
                },
                number_column: (content == Content::Table).then(|| "a\nb".to_owned()),
                number_settings: match content == Content::Table {
                    true => vec!["percent = true".to_owned(), "currency = \"$\"".to_owned()],
                    false => Vec::new(),
                },
                open_numbers: (content == Content::Table).then(|| "`a\nb` may be\neither".into()),
                max_columns: (content == Content::Table).then_some(3001),
                encoding: (content == Content::Table).then(|| "latin1".to_owned()),
                has_escapes: content == Content::Table,
                records: (content == Content::Table).then(|| "a\\.b.\"c\"".to_owned()),
                left_out: Some("2 files are not read".to_owned()),
                other_tables: None,
                has_folders: false,
                other_members: None,
                unlabelled: None,
            };
            let all = [&columns, &of_texts, &of_images, &of_unlabelled];
            for columns in [None].into_iter().chain(all.map(Some)) {
                let text = text(&location, "p.toml", &Hints::default(), columns);
                let loaded = load("p.toml", &text, &[]);
                let loaded = loaded.unwrap_or_else(|e| panic!("{content:?}: {e}\n{text}"));
                assert_eq!(loaded.config.source[0].url, location.url);
                feedline_preprocess::check(&loaded.config).unwrap();
                if let Some(train) = &loaded.config.train {
                    feedline_trainer::check(train).unwrap();
                }
                let is_trained = loaded.config.train.is_some();
                assert_eq!(is_trained, content.trains(columns), "{content:?}");
            }
        }
    }
}
