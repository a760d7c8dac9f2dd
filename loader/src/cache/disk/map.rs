//! Memory maps of the cache's own files: the one place of the cache with unsafe code.
//!
//! A map of a file that another process truncates kills the process that reads it (SIGBUS), and a
//! write to the file changes bytes that Rust takes for constant. So only files are mapped that no
//! process changes: see [`map`]. Sources, and caches on network file systems, are read instead.

#![expect(unsafe_code, reason = "a memory map of a file is unsafe by nature")]

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::{FileExt as _, MetadataExt as _},
};

use bytes::Bytes;
use feedline_storage::private::own_uid;
use memmap2::{Advice, Mmap, MmapOptions};

/// Permission bits that let anybody write.
const WRITABLE: u32 = 0o222;

/// Bytes read at a time where pages cannot be populated by the kernel.
const READ_BYTES: usize = 256 << 10;

/// Maps `file`, which has `length` bytes; the map goes with the last clone or slice of them. All pages have been read
/// when it returns, so that a failing disk is an error here instead of a signal later. A file that is unlinked while it
/// is mapped stays readable.
///
/// The caller guarantees that `file` is in a folder where only caches of this program, run by one
/// user, write files, on a local disk, and that they never change a file after it has its name.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for a file of another length or without bytes, [`ErrorKind::PermissionDenied`] for one
/// that is not a plain file, that others may write to or that another user owns; otherwise the
/// error of the disk. An owner could change the permissions.
pub(crate) fn map(file: &File, length: usize) -> io::Result<Bytes> {
    let metadata = file.metadata()?;
    let is_own = own_uid().is_none_or(|own| metadata.uid() == own);
    if !metadata.is_file() || metadata.mode() & WRITABLE != 0 || !is_own {
        let reason = "only plain files of this user without write permissions are mapped";
        return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
    }
    if length == 0 || metadata.len() != length as u64 {
        let reason = format!("it has `{}` bytes instead of `{length}`", metadata.len());
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    // SAFETY: the map is sound as long as no process changes or truncates the file. The check above
    // ensures that no mode bit permits writing and that no other user owns it. The file was never
    // opened for writing after that mode was set, because the writer of this cache sets it
    // before the file gets its name; and the caller guarantees that only such files are passed.
    // Unlinking or
    // renaming does not touch the pages. `length` is the file's own, so that no page is beyond its
    // end.
    let map = unsafe { MmapOptions::new().len(length).map(file)? };
    populate(&map, file)?;
    Ok(Bytes::from_owner(map))
}

/// Has all pages read now.
fn populate(map: &Mmap, file: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match map.advise(Advice::PopulateRead) {
        // Kernels before 5.14 do not know it, nor do some emulations of the kernel.
        Err(e) if matches!(e.raw_os_error(), Some(EINVAL | ENOSYS)) => {}
        done => return done,
    }
    read_through(map.len(), file)
}

#[cfg(target_os = "linux")]
const EINVAL: i32 = 22;
#[cfg(target_os = "linux")]
const ENOSYS: i32 = 38;

/// Brings a file into the page cache by reading it.
fn read_through(length: usize, file: &File) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES.min(length)];
    let mut offset = 0;
    while offset < length {
        let bytes = READ_BYTES.min(length - offset);
        file.read_exact_at(&mut buffer[..bytes], offset as u64)?;
        offset += bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

    use super::*;

    /// A folder with one file in it, whose byte `i` is `i % 251`.
    struct Scene {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    fn content(length: usize) -> Vec<u8> {
        (0..251).cycle().take(length).collect()
    }

    fn scene(length: usize, mode: u32) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, content(length)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Scene {
            _folder: folder,
            path,
        }
    }

    fn map_of(scene: &Scene, length: usize) -> io::Result<Bytes> {
        map(&File::open(&scene.path).unwrap(), length)
    }

    #[test]
    fn a_map_shows_the_bytes_of_the_file() {
        for length in [1, 4095, 4096, 4097, 600_001] {
            let scene = scene(length, 0o444);
            assert_eq!(map_of(&scene, length).unwrap(), content(length));
        }
    }

    #[test]
    fn bytes_outlive_the_file_its_handle_and_other_clones() {
        let scene = scene(100_000, 0o444);
        let whole = map_of(&scene, 100_000).unwrap();
        let slice = whole.slice(70_000..70_010);
        drop(whole);
        fs::remove_file(&scene.path).unwrap();
        drop(scene);
        assert_eq!(slice, content(100_000)[70_000..70_010]);
    }

    #[test]
    fn bytes_may_be_read_and_dropped_on_other_threads() {
        let scene = scene(300_000, 0o444);
        let bytes = map_of(&scene, 300_000).unwrap();
        std::thread::scope(|scope| {
            for part in 0..4 {
                let bytes = bytes.clone();
                let range = part * 75_000..(part + 1) * 75_000;
                scope.spawn(move || assert_eq!(bytes[range.clone()], content(300_000)[range]));
            }
            drop(bytes);
        });
    }

    #[test]
    fn a_file_that_somebody_may_write_to_is_refused() {
        for mode in [0o644, 0o464, 0o446] {
            let error = map_of(&scene(10, mode), 10).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{mode:o}");
        }
    }

    #[test]
    fn a_file_of_another_length_is_refused_before_it_is_mapped() {
        for (length, asked) in [(0, 0), (0, 1), (10, 11), (10, 9)] {
            let error = map_of(&scene(length, 0o444), asked).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{length} {asked}");
        }
    }

    #[test]
    fn reading_through_covers_every_length_and_sees_a_short_file() {
        for length in [1, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1] {
            let scene = scene(length, 0o444);
            let file = File::open(&scene.path).unwrap();
            read_through(length, &file).unwrap();
            let error = read_through(length + 1, &file).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }
}
