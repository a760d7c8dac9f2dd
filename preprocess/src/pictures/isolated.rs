//! Pictures decoded by a process of its own, whose memory the system bounds and which is started again where a decoder
//! brings it down.

use std::{
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use feedline_picture::{PictureError, Preparation, Prepared, Remote};

use crate::Error;

/// Address space that the program takes before it decodes anything: threads' stacks and what it is linked with.
const PROGRAM_BYTES: u64 = 1 << 30;

/// Bounds the address space and becomes the program: no call of the standard library does the first, and the shell's is
/// inherited.
const BOUNDED: &str = "ulimit -v \"$1\" && exec \"$2\" decode-pictures";

/// A decoder in another process.
#[derive(Debug)]
pub(crate) struct Isolated {
    program: PathBuf,
    how: Preparation,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    remote: Option<Remote<ChildStdout, ChildStdin>>,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its input ends with this, and so does the process.
        self.remote = None;
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "a process that decodes pictures was left behind");
        }
    }
}

impl Isolated {
    /// `program` is this one, which decodes pictures by its command `decode-pictures`.
    pub(crate) fn new(program: PathBuf, how: Preparation) -> Self {
        Self {
            program,
            how,
            running: None,
        }
    }

    /// As [`feedline_picture::Preparer::prepare`]. A picture that ends the process is damaged.
    ///
    /// # Errors
    /// [`Error::Scratch`](crate::Error) where the process cannot be started.
    pub(crate) fn prepare(&mut self, file: &[u8]) -> Result<Result<Prepared, PictureError>, Error> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start()?,
        };
        let answer = match &mut running.remote {
            Some(remote) => remote.prepare(file),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        };
        match answer {
            Ok(prepared) => {
                self.running = Some(running);
                Ok(prepared)
            }
            Err(error) => {
                running.remote = None;
                let status = running.child.wait();
                let end = status.map_or_else(|_| error.to_string(), |status| status.to_string());
                Ok(Err(PictureError::Corrupt {
                    reason: format!("its decoder was stopped ({end})"),
                }))
            }
        }
    }

    fn start(&self) -> Result<Running, Error> {
        let failed = |error| Error::scratch(&self.program, error);
        let limits = &self.how.limits;
        // The decoder, the file that came, a copy of it and the file that is stored.
        let bytes = PROGRAM_BYTES + limits.decoder_bytes * 2 + u64::from(limits.encoded_bytes) * 4;
        let kibibytes = (bytes >> 10).to_string();
        let mut child = Command::new("/bin/sh")
            .args(["-c", BOUNDED, "sh", &kibibytes])
            .arg(&self.program)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let (from, to) = pipes.expect("both were asked for");
        let mut running = Running {
            remote: None,
            child,
        };
        running.remote = Some(Remote::new(&self.how, from, to).map_err(failed)?);
        Ok(running)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use feedline_picture::{Encoding, Filter, PictureLimits, Sizing};

    use super::*;

    fn how() -> Preparation {
        Preparation {
            sizing: Sizing::Original,
            filter: Filter::Bilinear,
            encoding: Some(Encoding::Raw),
            keep_original: true,
            limits: PictureLimits {
                encoded_bytes: 1 << 20,
                decoder_bytes: 64 << 20,
                ..PictureLimits::DEFAULT
            },
            scaled_decoding: false,
            hashes: false,
        }
    }

    /// A program that does what `script` says.
    fn program(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_decoder_that_ends_sets_its_picture_aside_and_is_started_again_within_its_memory() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let script = format!(
            "ulimit -v >> {}; printf '\\000\\000\\000\\000'; exit 3",
            told.display()
        );
        let mut isolated = Isolated::new(program(folder.path(), &script), how());
        for _ in 0..2 {
            let error = isolated.prepare(b"GIF89a").unwrap().unwrap_err();
            let expected = "the picture is damaged: its decoder was stopped (exit status: 3)";
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        // A gibibyte for the program, twice 64 MiB and four times 1 MiB.
        let kibibytes = (1 << 20) + (128 << 10) + (4 << 10);
        assert_eq!(
            fs::read_to_string(told).unwrap(),
            format!("{kibibytes}\n").repeat(2)
        );
    }

    #[test]
    fn a_program_that_decodes_nothing_stops_the_build() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path(), "exit 0");
        let mut isolated = Isolated::new(program.clone(), how());
        let error = isolated.prepare(b"GIF89a").unwrap_err();
        let program = program.display().to_string();
        assert!(error.to_string().contains(&program), "{error}");
    }
}
