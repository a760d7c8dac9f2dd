//! The file of the predictions.

use std::{
    fs::{self, File},
    io::{BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use feedline_preprocess::{PassthroughType, RowFormat, RowsOut};
use feedline_schemas::report::Warning;

/// Target and format of the predictions.
pub(crate) struct Output {
    target: Target,
    escapes_formulas: bool,
}

impl Output {
    /// Opens the target; standard output without a path.
    ///
    /// # Errors
    /// A path with an unknown extension, and formulas to be escaped in a format without formulas.
    pub(crate) fn of(path: Option<&Path>, escapes_formulas: bool) -> anyhow::Result<Self> {
        let target = Target::of(path)?;
        anyhow::ensure!(
            !escapes_formulas || target.format == RowFormat::Csv,
            "`--escape-formulas` is for CSV, and the predictions are written in another format; set `--to` to a file that ends with `.csv`, or remove the option"
        );
        Ok(Self {
            target,
            escapes_formulas,
        })
    }

    /// Types of passthrough columns in this format: those of the input if it has types, otherwise
    /// none, which is text.
    pub(crate) fn types_of(&self, input: &[PassthroughType]) -> Vec<PassthroughType> {
        match self.target.format {
            RowFormat::Parquet => input.to_vec(),
            RowFormat::Csv | RowFormat::Ndjson => Vec::new(),
        }
    }

    /// Name of the target, `-` for standard output.
    pub(crate) fn name(&self) -> String {
        self.target.name()
    }

    /// Writes columns of these names with `write`. A file appears complete or not at all. A closed
    /// standard output is no failure, but a warning for the report.
    pub(super) fn write(
        self,
        names: &[String],
        write: impl FnOnce(&mut RowsOut<Box<dyn Write + Send>>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<Warning>> {
        let target = self.target;
        let mut out = match RowsOut::new(target.open()?, target.format, names) {
            Ok(out) if self.escapes_formulas => out.escaping_formulas(),
            Ok(out) => out,
            Err(error) => return target.close(Err(error.into())).map(|()| None),
        };
        let written = write(&mut out).and_then(|()| Ok(out.finish()?));
        match written {
            Err(error) if is_closed(&error) && target.path.is_none() => {
                let message =
                    "standard output was closed, so the other predictions were not written";
                tracing::warn!("{message}");
                Ok(Some(Warning::new("output_closed", message)))
            }
            written => {
                let written = written.map_err(|error| target.name_failed_write(error));
                target.close(written).map(|()| None)
            }
        }
    }
}

/// Returns true if the reader of the output has closed it.
fn is_closed(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Names the file in an error of writing it, and the way out if its disk is full.
fn name_file(error: std::io::Error, path: &Path) -> anyhow::Error {
    let path = path.display();
    let what = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => format!(
            "no space left to write `{path}`; free space, or name a file on another disk, and run the same command again"
        ),
        _ => format!("cannot write `{path}`"),
    };
    anyhow::Error::new(error).context(what)
}

/// Target of the predictions. A file appears complete or not at all.
struct Target {
    /// Final path and temporary path of the file.
    path: Option<(PathBuf, PathBuf)>,
    format: RowFormat,
}

impl Target {
    fn of(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self {
                path: None,
                format: RowFormat::Ndjson,
            });
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let format =
            RowFormat::of_name(&name).filter(|_| !name.ends_with(".gz") && !name.ends_with(".zst"));
        let format = format.with_context(|| {
            format!(
                "unknown format of `{}`: predictions are written as `.csv`, `.ndjson` or `.parquet`",
                path.display()
            )
        })?;
        let temporary = path.with_file_name(format!(".tmp-{}-{name}", std::process::id()));
        Ok(Self {
            path: Some((path.to_owned(), temporary)),
            format,
        })
    }

    fn name(&self) -> String {
        let path = self.path.as_ref();
        path.map_or_else(|| "-".to_owned(), |(path, _)| path.display().to_string())
    }

    fn open(&self) -> anyhow::Result<Box<dyn Write + Send>> {
        Ok(match &self.path {
            None => Box::new(std::io::stdout()),
            Some((path, temporary)) => {
                let file = File::create(temporary);
                let file = file.map_err(|error| name_file(error, path))?;
                Box::new(BufWriter::new(file))
            }
        })
    }

    /// Names the file in an error of its writer. Other errors have messages of their own.
    fn name_failed_write(&self, error: anyhow::Error) -> anyhow::Error {
        let Some((path, _)) = &self.path else {
            return error;
        };
        let top = error.chain().next();
        if !top.is_some_and(|top| top.is::<std::io::Error>()) {
            return error;
        }
        match error.downcast() {
            Ok(error) => name_file(error, path),
            Err(error) => error,
        }
    }

    /// Renames the file to its final name, or removes it.
    fn close(&self, written: anyhow::Result<()>) -> anyhow::Result<()> {
        let Some((path, temporary)) = &self.path else {
            return written;
        };
        let close = || {
            File::open(temporary)?
                .sync_all()
                .and_then(|()| fs::rename(temporary, path))?;
            // Without a durable folder entry, a power failure may lose the name.
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        let closed = written.and_then(|()| close().map_err(|error| name_file(error, path)));
        if closed.is_err() && fs::remove_file(temporary).is_err() {
            tracing::warn!(path = %temporary.display(), "an unfinished file stays");
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_names_the_file_and_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.csv");
        let fail = |error: anyhow::Error| {
            let output = Output::of(Some(path.as_path()), false).unwrap();
            let names = ["row".to_owned()];
            let error = output.write(&names, |_| Err(error)).unwrap_err();
            let left = fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, 0, "no unfinished file stays");
            format!("{error:#}")
        };
        let full = || std::io::Error::from(ErrorKind::StorageFull);
        let expected = format!(
            "no space left to write `{}`; free space, or name a file on another disk, and run the same command again: ",
            path.display()
        );
        let error = fail(full().into());
        assert!(error.starts_with(&expected), "{error}");
        let error = fail(std::io::Error::from(ErrorKind::BrokenPipe).into());
        let expected = format!("cannot write `{}`: ", path.display());
        assert!(error.starts_with(&expected), "{error}");
        // An error of another file has a message of its own.
        let error = fail(anyhow::Error::from(full()).context("scratch folder"));
        assert!(error.starts_with("scratch folder: "), "{error}");
    }
}
