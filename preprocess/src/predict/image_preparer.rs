//! New image files as a dataset stores its own: within the same limits, in the same size and format.

use feedline_image::Preparer;
use feedline_schemas::config::{DatasetConfig, ImageBackground, ImageDuplicates};

use crate::{
    Error, Fault,
    operators::{
        content_column::image_fault,
        images::{self, describe_fault},
    },
};

/// Reason of a file that a build would reject.
const ROW_REJECTED: &str = "row_rejected";

/// Preparer of new image files.
#[derive(Debug)]
pub struct ImagePreparer {
    /// None where images are stored as they came.
    preparer: Option<(Preparer, bool)>,
}

impl ImagePreparer {
    /// The preparer for a dataset of this configuration that was built with `background`, as its transform artefact says.
    /// Files are decoded in this process.
    ///
    /// # Errors
    /// [`Error::Config`] for settings out of range.
    pub fn new(config: &DatasetConfig, background: ImageBackground) -> Result<Self, Error> {
        let mut config = config.clone();
        if let Some(image) = &mut config.image {
            image.background = Some(background);
            image.duplicates = ImageDuplicates::Bytes;
            image.embeddings = None;
            image.embedding_cosine = None;
            image.boxes = None;
            image.boxes_on = None;
        }
        let images = images::resolve(&config, "image", &[])?;
        Ok(Self {
            preparer: images.map(|images| {
                let as_it_came = images.how.encoding.is_none();
                (Preparer::new(images.how), as_it_came)
            }),
        })
    }

    /// The file as the dataset would store it.
    ///
    /// # Errors
    /// The reason for which a build would reject it.
    pub fn prepare(&mut self, file: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let rejected =
            |reason: &str, found: String| Fault::new(ROW_REJECTED, format!("`{reason}`: {found}"));
        let Some((preparer, as_it_came)) = &mut self.preparer else {
            return match image_fault(&file) {
                Some(found) => Err(rejected("not_an_image", found)),
                None => Ok(file),
            };
        };
        match preparer.prepare(&file) {
            Ok(prepared) => Ok(prepared.file.unwrap_or(file)),
            Err(error) => {
                let reason = format!("image_{}", error.code());
                Err(rejected(&reason, describe_fault(&error, *as_it_came)))
            }
        }
    }
}
