//! Tables with image files in a column, as image datasets of Hugging Face are.

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_schemas::record::ColumnType;

use super::{ColumnRoles, Dropped, TARGETS, is_class};

/// Code of the warning about columns of image files.
const IMAGE_AS_BYTES: &str = "image_as_bytes";
/// Most distinct integers that are the classes of images.
const MAX_IMAGE_CLASSES: u64 = 1_000;

/// Column of image files in an object with their `bytes` and `path`.
pub(super) fn image_column(preview: &SourcePreview) -> Option<&str> {
    let mut warnings = preview.warnings.iter();
    let warning = warnings.find(|warning| warning.code == IMAGE_AS_BYTES)?;
    let has_path = |object: &str| {
        let path = format!("{object}.path");
        preview.columns.iter().any(|column| column.name == path)
    };
    let mut columns = preview.columns.iter();
    let found = columns.find(|column| {
        let object = column.name.strip_suffix(".bytes");
        column.column_type == Some(ColumnType::Binary)
            && object.is_some_and(has_path)
            && warning.is_about(&column.name)
    });
    found.map(|column| column.name.as_str())
}

impl ColumnRoles {
    /// Chooses the images in the column `content` for the model, and a class among the other columns
    /// if no target is named.
    pub(super) fn choose_images(&mut self, content: &str, preview: &SourcePreview) {
        self.drop_columns(preview);
        self.dropped.retain(|dropped| dropped.column != content);
        let object = content.strip_suffix(".bytes").unwrap_or(content);
        let is_part = |name: &str| {
            let rest = name.strip_prefix(object);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let is_candidate = |column: &ColumnPreview| {
            let is_named = TARGETS.contains(&column.name.to_lowercase().as_str());
            !is_part(&column.name) && (is_named || is_class(column, MAX_IMAGE_CLASSES))
        };
        self.drop_others(preview, content, is_candidate);
        if self.target.is_none() {
            self.choose_target(preview);
        }
        self.choose_task(preview, MAX_IMAGE_CLASSES);
        self.drop_others(preview, content, |_| false);
        let without_target = match &self.target {
            Some(_) => "",
            None => "; no column can be the target, name one by `--target COLUMN`",
        };
        self.decisions.push(format!(
            "`{content}` holds image files, so the model reads images, and no other column{without_target}; \
             `dataset.kind = \"multi\"` reads both"
        ));
        self.images = Some(content.to_owned());
    }

    /// Drops the columns that are neither the images in `content` nor the target, but for those that
    /// `stays` returns true for.
    fn drop_others(
        &mut self,
        preview: &SourcePreview,
        content: &str,
        stays: impl Fn(&ColumnPreview) -> bool,
    ) {
        for column in &preview.columns {
            let is_used = column.name == content || self.target.as_ref() == Some(&column.name);
            if !is_used && !self.is_dropped(column) && !stays(column) {
                self.dropped.push(Dropped {
                    column: column.name.clone(),
                    reason: "the model reads images alone".to_owned(),
                });
            }
        }
    }
}
