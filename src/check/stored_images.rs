//! Image files that shards do not hold as they came.

use feedline_ingest::SourcePreview;
use feedline_schemas::{
    config::{DatasetConfig, FileFormat, ImageStore, PipelineConfig},
    ids::Name,
    report::Warning,
};

use super::checked_source::CheckedSource;

/// Endings of such files.
const OTHERS: [&str; 4] = ["gif", "bmp", "tif", "tiff"];

/// Warns of image files that a build rejects because it would store them as they came, by the samples
/// of their paths. Sources that the dataset does not read have no such files.
pub(super) fn warn_of_stored_images(
    settings: &DatasetConfig,
    config: &PipelineConfig,
    previews: &[SourcePreview],
    sources: &mut [CheckedSource],
) {
    let store = settings.image.as_ref().map(|image| image.store);
    if settings.kind.is_rows() || store.is_some_and(|store| store != ImageStore::Original) {
        return;
    }
    for preview in previews {
        let mut named = config.source.iter();
        let is_of_images = named.any(|source| {
            source.name.as_str() == preview.source
                && source.format == FileFormat::Image
                && has_rows_of(settings, &source.name)
        });
        let columns = preview.columns.iter();
        let mut paths = columns.filter(|column| column.name == "path");
        let path = paths.find_map(|column| column.samples.iter().find(|path| is_other(path)));
        let mut sources = sources.iter_mut();
        let source = sources.find(|source| source.name == preview.source);
        if let (true, Some(path), Some(source)) = (is_of_images, path, source) {
            let message = format!(
                "shards do not hold GIF, BMP and TIFF as they came, and a build rejects such files, as `{path}` seems to be one; set \
                 `dataset.image.store`, such as `\"png\"`, to convert them"
            );
            let warning = Warning::new("images_not_stored", message);
            source
                .warnings
                .push(warning.with_key("dataset.image.store"));
        }
    }
}

/// Returns true if rows of the dataset come from the source `name`.
fn has_rows_of(settings: &DatasetConfig, name: &Name) -> bool {
    let mut tables = settings.sources.iter();
    settings.sources.is_empty() || tables.any(|table| table.source == *name)
}

/// Returns true for a path with the ending of such a file.
fn is_other(path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| OTHERS.contains(&ending.to_ascii_lowercase().as_str()))
}
