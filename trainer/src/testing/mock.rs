//! Mocks of NVIDIA's libraries, compiled by the tests.
//!
//! A program finds them as it finds the libraries, by `LD_LIBRARY_PATH`. A process reads it when it starts, so tests run
//! this program again for what opens a library by its name.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// Libraries in a folder of their own.
pub(crate) struct MockLibraries(TempDir);

impl MockLibraries {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Compiles a source, by its path in this package, to a library. Returns its path.
    pub(crate) fn compile(&self, source: &str, library: &str, options: &[&str]) -> PathBuf {
        let path = self.0.path().join(library);
        let compiled = Command::new("cc")
            .args(["-std=c11", "-O1", "-Wall", "-shared", "-fPIC", "-pthread"])
            .arg("-o")
            .arg(&path)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
            .args(options)
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        path
    }

    /// Compiles the driver.
    pub(crate) fn compile_driver(&self) -> PathBuf {
        self.compile("../loader/tests/it/mock_driver/cuda.c", "libcuda.so", &[])
    }

    /// Folder of the libraries.
    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// This program with one test, which is ignored otherwise and finds the libraries.
    pub(crate) fn command(&self, test: &str) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env("LD_LIBRARY_PATH", self.folder());
        command
    }
}
