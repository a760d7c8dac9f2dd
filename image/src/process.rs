//! Preparing images in another process, so that a crash of a decoder stops nothing else.
//!
//! Both ends send frames, `length u32 | bytes`, little endian. First comes the [`Preparation`] as
//! JSON; the response is an empty frame. Then each file is a frame, and its response has two: JSON
//! with the result, and the file to store (empty for an unchanged file). The other process ends
//! when its input does.

use std::io::{self, BufReader, BufWriter, Read, Write};

use serde::{Deserialize, Serialize};

use crate::{ChannelSums, ImageError, ImageHashes, Mapping, Preparation, Prepared, Preparer};

/// Most bytes of a frame: those of the largest file, and of the largest image as pixels.
const MOST_BYTES: u32 = 1 << 30;

/// Result for a file, without the file itself.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    sides: [u32; 2],
    sums: ChannelSums,
    mapping: Mapping,
    hashes: Option<ImageHashes>,
    is_transparent: bool,
    /// A file follows that is to be stored in place of the one that came.
    is_new: bool,
}

/// Prepares incoming images until the input ends. Calls `busy` when one begins (true) and ends
/// (false).
///
/// # Errors
/// Those of the streams, and [`io::ErrorKind::InvalidData`] for input that breaks the protocol.
pub fn serve(input: impl Read, output: impl Write, mut busy: impl FnMut(bool)) -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(input), BufWriter::new(output));
    let Some(how) = read(&mut input)? else {
        return Ok(());
    };
    let mut preparer = Preparer::new(serde_json::from_slice::<Preparation>(&how)?);
    write(&mut output, &[])?;
    output.flush()?;
    while let Some(file) = read(&mut input)? {
        busy(true);
        let prepared = preparer.prepare(&file);
        busy(false);
        let (told, new) = match prepared {
            Ok(prepared) => {
                let told = Told {
                    sides: prepared.sides,
                    sums: prepared.sums,
                    mapping: prepared.mapping,
                    hashes: prepared.hashes,
                    is_transparent: prepared.is_transparent,
                    is_new: prepared.file.is_some(),
                };
                (Ok(told), prepared.file)
            }
            Err(error) => (Err(error), None),
        };
        write(&mut output, &serde_json::to_vec::<Result<_, _>>(&told)?)?;
        write(&mut output, new.as_deref().unwrap_or_default())?;
        output.flush()?;
    }
    Ok(())
}

/// Client of a process that [`serve`]s.
///
/// ```
/// use std::{io::pipe, thread};
///
/// use feedline_image::{Encoding, Remote, serve};
///
/// # use feedline_image::{Filter, ImageLimits, Preparation, Sizing};
/// # let how = Preparation {
/// #     sizing: Sizing::ShorterSide(4),
/// #     filter: Filter::Lanczos,
/// #     encoding: Some(Encoding::Jpeg { quality: 90 }),
/// #     keep_original: false,
/// #     limits: ImageLimits::DEFAULT,
/// #     scaled_decoding: true,
/// #     background: Some([255; 3]),
/// #     hashes: true,
/// # };
/// // In earnest the other end is a process, and the pipes are its input and output.
/// let ((requests, to), (from, responses)) = (pipe()?, pipe()?);
/// let worker = thread::spawn(move || serve(requests, responses, |_| {}));
/// let mut remote = Remote::new(from, to);
/// remote.begin(&how)?;
/// let file = Encoding::Png.encode(&[128; 12 * 8 * 3], 12, 8)?;
/// assert_eq!(remote.prepare(&file)??.sides, [6, 4]);
/// drop(remote);
/// worker.join().expect("no decoder panicked")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Remote<R: Read, W: Write> {
    from: BufReader<R>,
    to: BufWriter<W>,
}

impl<R: Read, W: Write> Remote<R, W> {
    /// Creates a client; [`Self::begin`] starts the protocol.
    pub fn new(from: R, to: W) -> Self {
        Self {
            from: BufReader::new(from),
            to: BufWriter::new(to),
        }
    }

    /// Sends the settings.
    ///
    /// # Errors
    /// Those of the streams: the other process has ended.
    pub fn begin(&mut self, how: &Preparation) -> io::Result<()> {
        write(&mut self.to, &serde_json::to_vec(how)?)?;
        self.to.flush()?;
        self.answer().map(drop)
    }

    /// Prepares an image in the other process, see [`Preparer::prepare`].
    ///
    /// # Errors
    /// Those of the streams: the other process has ended, and this client must be dropped.
    pub fn prepare(&mut self, file: &[u8]) -> io::Result<Result<Prepared, ImageError>> {
        write(&mut self.to, file)?;
        self.to.flush()?;
        let told: Result<Told, ImageError> = serde_json::from_slice(&self.answer()?)?;
        let file = self.answer()?;
        Ok(told.map(|told| Prepared {
            file: told.is_new.then_some(file),
            sides: told.sides,
            sums: told.sums,
            mapping: told.mapping,
            hashes: told.hashes,
            is_transparent: told.is_transparent,
        }))
    }

    fn answer(&mut self) -> io::Result<Vec<u8>> {
        read(&mut self.from)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn write(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let length = u32::try_from(frame.len())
        .ok()
        .filter(|length| *length <= MOST_BYTES);
    let length = length.ok_or_else(|| io::Error::other("a file of more than 1 GiB"))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(frame)
}

/// The next frame; `None` where the stream ends before it.
fn read(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    let mut got = 0;
    while got < length.len() {
        match from.read(&mut length[got..])? {
            0 if got == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            some => got += some,
        }
    }
    let length = u32::from_le_bytes(length);
    if length > MOST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes"),
        ));
    }
    let mut frame = Vec::new();
    from.take(length.into()).read_to_end(&mut frame)?;
    if frame.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use std::{io::pipe, thread};

    use super::*;
    use crate::{Encoding, Filter, ImageLimits, Sizing, testing::scene};

    fn how(encoding: Option<Encoding>) -> Preparation {
        Preparation {
            sizing: Sizing::Original,
            filter: Filter::Bilinear,
            encoding,
            keep_original: true,
            limits: ImageLimits {
                pixels: 100_000,
                ..ImageLimits::DEFAULT
            },
            scaled_decoding: false,
            background: Some([255; 3]),
            hashes: true,
        }
    }

    #[test]
    fn answers_are_those_of_this_process() {
        let small = Encoding::Png.encode(&scene(60, 40), 60, 40).unwrap();
        let large = Encoding::Png.encode(&scene(600, 400), 600, 400).unwrap();
        let files: [&[u8]; 5] = [&small, &large, b"", &small[..100], b"GIF89a"];
        for encoding in [None, Some(Encoding::Jpeg { quality: 80 })] {
            let how = how(encoding);
            let (input, to) = pipe().unwrap();
            let (from, output) = pipe().unwrap();
            let mut images = 0;
            thread::scope(|scope| {
                let other = scope.spawn(|| serve(input, output, |busy| images += i32::from(busy)));
                let mut remote = Remote::new(from, to);
                remote.begin(&how).unwrap();
                let mut here = Preparer::new(how);
                for file in files {
                    assert_eq!(remote.prepare(file).unwrap(), here.prepare(file));
                }
                drop(remote);
                other.join().unwrap().unwrap();
            });
            assert_eq!(images, 5);
        }
    }

    #[test]
    fn a_process_that_ends_is_an_error_and_no_answer() {
        let (_, to) = pipe().unwrap();
        let (from, output) = pipe().unwrap();
        drop(output);
        assert!(Remote::new(from, to).begin(&how(None)).is_err());
        let mut cut = [9, 0, 0, 0, 1].as_slice();
        assert_eq!(
            read(&mut cut).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        let mut huge = [0xff; 4].as_slice();
        assert_eq!(
            read(&mut huge).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        assert!(read(&mut [].as_slice()).unwrap().is_none());
    }
}
