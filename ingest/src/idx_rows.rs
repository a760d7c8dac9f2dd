//! idx images as records, the layout of MNIST (yann.lecun.com/exdb/mnist). A file has two zero
//! bytes, the type (8: unsigned byte), the number of dimensions, each dimension as a big-endian
//! `u32`, then the values, the last dimension fastest.
//!
//! Images have the dimensions `[images, height, width]` or `[images, height, width, channels]`,
//! labels `[images]`. A record has the columns `image` and, with a label file, `label`, an integer.
//! `image` is a binary PGM (1 channel) or PPM (3 channels) file, so it states its own size and any
//! tool opens it.
//!
//! Both files are checked before the first record. A pair that is truncated, too long or does not
//! match lands nothing.

use std::io::{BufReader, Read};

use feedline_schemas::pnm;

use crate::{
    file_bytes::FileBytes,
    file_format::Packing,
    rows::{Rows, unpacked},
    source::record::Record,
    value::Value,
};

/// Maximum pixels of a side, as in later stages.
const SIDE: u32 = 1 << 14;
/// Maximum bytes of an image: the size in the header decides how much memory is allocated.
const IMAGE: u64 = 64 << 20;

type Bytes = BufReader<Box<dyn Read + Send>>;

/// Reads images, each with its label.
pub(crate) struct IdxRows {
    images: Bytes,
    labels: Option<Bytes>,
    sides: Sides,
    left: u64,
}

/// Sides of each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sides {
    height: u32,
    width: u32,
    channels: u32,
}

impl IdxRows {
    /// Checks both files completely and seeks to the first image.
    ///
    /// # Errors
    /// The reason why one of the files is invalid.
    pub(crate) fn open(
        file: &FileBytes,
        packing: Packing,
        labels: Option<&(FileBytes, Packing)>,
    ) -> Result<Self, String> {
        let mut images = BufReader::new(unpacked(file, packing)?);
        let (count, sides) = Sides::read(&mut images)?;
        drained(&mut images, count * sides.bytes(), "images")?;
        let mut rows = Self {
            images: BufReader::new(unpacked(file, packing)?),
            labels: None,
            sides,
            left: count,
        };
        Sides::read(&mut rows.images)?;
        if let Some((file, packing)) = labels {
            let in_labels = |reason: String| format!("its labels `{}`: {reason}", file.mark.url);
            let mut all = BufReader::new(unpacked(file, *packing)?);
            let found = read_labels(&mut all).map_err(in_labels)?;
            if found != count {
                let reason = format!("they are {found}, and there are {count} images");
                return Err(in_labels(reason));
            }
            drained(&mut all, found, "labels").map_err(in_labels)?;
            let mut all = BufReader::new(unpacked(file, *packing)?);
            read_labels(&mut all).map_err(in_labels)?;
            rows.labels = Some(all);
        }
        Ok(rows)
    }
}

impl Rows for IdxRows {
    fn next(&mut self) -> Result<Option<Record>, String> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let image = self.sides.image(&mut self.images)?;
        let mut entries = vec![("image".to_owned(), Value::Bytes(image))];
        if let Some(labels) = &mut self.labels {
            let mut label = [0];
            labels.read_exact(&mut label).map_err(|e| e.to_string())?;
            entries.push(("label".to_owned(), Value::Int(label[0].into())));
        }
        Ok(Some(Record::Value(Value::Object(entries))))
    }
}

impl Sides {
    /// Reads the header of images: their number and dimensions.
    fn read(reader: &mut impl Read) -> Result<(u64, Self), String> {
        let dimensions = header(reader)?;
        let (count, height, width, channels) = match dimensions[..] {
            [count, height, width] => (count, height, width, 1),
            [count, height, width, channels] => (count, height, width, channels),
            _ => {
                return Err(format!(
                    "it has {} dimensions, images have 3 or 4 (number, height, width and perhaps channels); is it \
                     the file of labels?",
                    dimensions.len()
                ));
            }
        };
        let sides = Self {
            height,
            width,
            channels,
        };
        let fits = (1..=SIDE).contains(&height) && (1..=SIDE).contains(&width);
        if !fits || !matches!(channels, 1 | 3) || sides.bytes() > IMAGE {
            return Err(format!(
                "its header says images of {height} x {width} pixels and {channels} channels; sides are 1 to {SIDE}, \
                 channels 1 or 3, and an image has at most {IMAGE} bytes"
            ));
        }
        Ok((count.into(), sides))
    }

    /// Bytes of an image's pixels.
    fn bytes(self) -> u64 {
        u64::from(self.height) * u64::from(self.width) * u64::from(self.channels)
    }

    /// The next image as a PGM or PPM file.
    fn image(self, reader: &mut impl Read) -> Result<Vec<u8>, String> {
        let mut image = pnm::header(self.width, self.height, self.channels).into_bytes();
        let start = image.len();
        let pixels = usize::try_from(self.bytes()).map_err(|e| e.to_string())?;
        image.resize(start + pixels, 0);
        let read = reader.read_exact(&mut image[start..]);
        read.map(|()| image).map_err(|e| e.to_string())
    }
}

fn read_labels(reader: &mut impl Read) -> Result<u64, String> {
    match header(reader)?[..] {
        [count] => Ok(count.into()),
        ref dimensions => Err(format!(
            "it has {} dimensions, labels have 1; is it the file of images?",
            dimensions.len()
        )),
    }
}

/// The dimensions of an idx file of unsigned bytes.
fn header(reader: &mut impl Read) -> Result<Vec<u32>, String> {
    let mut four = || {
        let mut bytes = [0; 4];
        let read = reader.read_exact(&mut bytes);
        read.map(|()| bytes)
            .map_err(|e| format!("its header cannot be read: {e}"))
    };
    let [0, 0, kind, count] = four()? else {
        return Err("it does not begin with two zero bytes, so it is no idx file".into());
    };
    if kind != 8 {
        return Err(format!(
            "its values are of type {kind:#04x}, images and labels are of 0x08 (unsigned byte)"
        ));
    }
    (0..count).map(|_| four().map(u32::from_be_bytes)).collect()
}

/// Reads to the end, and checks that there were `expected` bytes.
fn drained(reader: &mut impl Read, expected: u64, what: &str) -> Result<(), String> {
    let read = std::io::copy(&mut reader.take(expected + 1), &mut std::io::sink());
    match read.map_err(|e| e.to_string())? {
        found if found < expected => Err(format!(
            "it ends after {found} of {expected} bytes of {what}; it is truncated, download it again"
        )),
        found if found > expected => Err(format!(
            "it has data after its last byte of {what}, the {expected}th; its header is damaged, or it is another file"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        commit::Position,
        config::{FileFormat, FilesChanged, SourceConfig},
    };

    use crate::files::tests::{Folder, gzip, pages, records, refused};

    fn idx(dimensions: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, u8::try_from(dimensions.len()).unwrap()];
        bytes.extend(dimensions.iter().flat_map(|d| d.to_be_bytes()));
        bytes.extend(values);
        bytes
    }

    /// Three images of 1 x 2 pixels, and their labels.
    fn pair() -> (Vec<u8>, Vec<u8>) {
        (
            idx(&[3, 1, 2], &[0, 1, 16, 17, 254, 255]),
            idx(&[3], &[9, 0, 255]),
        )
    }

    fn source(folder: &Folder, images: &str, labels: Option<&str>) -> SourceConfig {
        let mut config = folder.source(images);
        config.format = FileFormat::Idx;
        config.idx.labels = labels.map(|name| folder.path(name));
        config
    }

    /// A record as it should be: header of the image's file, pixels as hexadecimal digits, label.
    fn record(header: &str, pixels: &str, label: Option<u8>) -> String {
        let header: String = header.bytes().map(|b| format!("{b:02x}")).collect();
        let label = label.map_or(String::new(), |label| format!(r#","label":{label}"#));
        format!(r#"{{"image":"{header}{pixels}"{label}}}"#)
    }

    async fn check_refused(images: &[u8], labels: &[u8], expected: &str) {
        let folder = Folder::new(&[("p", images), ("l", labels)]);
        let error = refused(&source(&folder, "p", Some("l"))).await;
        assert!(error.contains(expected), "{error}");
    }

    #[tokio::test]
    async fn images_are_whole_files_with_their_labels() {
        let (images, labels) = pair();
        let folder = Folder::new(&[("p.gz", &gzip(&images)), ("l", &labels)]);
        let header = "P5\n2 1\n255\n";
        let with = |label: fn(u8) -> Option<u8>| {
            [("0001", 9), ("1011", 0), ("feff", 255)]
                .map(|(pixels, class)| record(header, pixels, label(class)))
        };
        let config = source(&folder, "p.gz", Some("l"));
        assert_eq!(records(&config).await, with(Some));
        let config = source(&folder, "p.gz", None);
        assert_eq!(records(&config).await, with(|_| None));
        let colour = idx(&[1, 1, 1, 3], &[1, 2, 3]);
        let folder = Folder::new(&[("p", &colour)]);
        let expected = [record("P6\n1 1\n255\n", "010203", None)];
        assert_eq!(records(&source(&folder, "p", None)).await, expected);
    }

    #[tokio::test]
    async fn a_file_that_is_not_whole_lands_nothing() {
        let (images, labels) = pair();
        let cut = &images[..images.len() - 1];
        check_refused(cut, &labels, "it ends after 5 of 6 bytes of images").await;
        check_refused(
            &gzip(cut),
            &labels,
            "it does not begin with two zero bytes, so it is no idx file",
        )
        .await;
        let long = [&images[..], &[0]].concat();
        check_refused(&long, &labels, "it has data after its last byte of images").await;
        check_refused(&images[..10], &labels, "its header cannot be read").await;
        check_refused(&images, &labels[..10], "ends after 2 of 3 bytes of labels").await;
        let other = idx(&[2], &[1, 2]);
        check_refused(&images, &other, "they are 2, and there are 3 images").await;
        check_refused(&labels, &labels, "is it the file of labels?").await;
        check_refused(&images, &images, "is it the file of images?").await;
        let floats = [&[0, 0, 13, 3], &images[4..]].concat();
        check_refused(&floats, &labels, "of type 0x0d").await;
        let huge = idx(&[1, 16_384, 16_384], &[]);
        check_refused(&huge, &labels, "at most 67108864 bytes").await;
        let empty = idx(&[1, 0, 5], &[]);
        check_refused(&empty, &labels, "sides are 1 to 16384").await;
    }

    #[tokio::test]
    async fn reading_goes_on_between_images_and_changed_labels_are_read_again_or_refused() {
        let (images, labels) = pair();
        let folder = Folder::new(&[("p", &images), ("l", &labels)]);
        let mut config = source(&folder, "p", Some("l"));
        config.batch.rows = feedline_schemas::config::Bounded::literal::<1>();
        let whole = pages(&config, Position::Start).await.unwrap();
        assert_eq!(whole.len(), 3);
        for (i, (_, position)) in whole.iter().enumerate().take(2) {
            let rest = pages(&config, position.clone()).await.unwrap();
            assert_eq!(rest, whole[i + 1..], "after page {i}");
        }
        folder.write("l", &idx(&[3], &[9, 1, 255]));
        // By default the images are re-read from the first.
        let again = pages(&config, whole[0].1.clone()).await.unwrap();
        assert_eq!(again.len(), 3);
        config.files.changed = FilesChanged::Refuse;
        let error = pages(&config, whole[0].1.clone()).await.unwrap_err();
        assert!(error.to_string().contains("it has changed"), "{error}");
    }

    #[tokio::test]
    async fn labels_belong_to_one_file_that_is_there() {
        let (images, _) = pair();
        let folder = Folder::new(&[("p1", &images), ("p2", &images)]);
        let error = refused(&source(&folder, "p?", Some("l"))).await;
        assert!(error.contains("`url` matches 2 files"), "{error}");
        let error = refused(&source(&folder, "p1", Some("l"))).await;
        assert!(error.starts_with("`idx.labels`: file"), "{error}");
    }
}
