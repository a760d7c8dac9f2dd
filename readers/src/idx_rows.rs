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
    record::Record,
    rows::{Rows, unpacked},
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
    /// Number of the next image, from 0.
    number: u64,
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
            number: 0,
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
        self.number += 1;
        let image = self.sides.image(&mut self.images)?;
        let mut entries = vec![("image".to_owned(), Value::Bytes(image))];
        if let Some(labels) = &mut self.labels {
            let mut label = [0];
            labels.read_exact(&mut label).map_err(|e| e.to_string())?;
            entries.push(("label".to_owned(), Value::Int(label[0].into())));
        }
        Ok(Some(Record::Value(Value::Object(entries))))
    }

    fn place(&self) -> String {
        format!("image {}", self.number.saturating_sub(1))
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
