//! Private folders and files of this user.
//!
//! In a folder that others may write to, such as the one for temporary files, any user can create a
//! folder with a predictable name. That user can then read and replace its content. So new folders
//! give no rights to others, and an existing one is used only if it is provably this user's alone.

use std::{
    fs::{self, DirBuilder, Metadata, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Permission bits that let users other than the owner change a file or folder.
const OTHERS_WRITE: u32 = 0o022;

/// User ID of this process; `None` if the system has no file that shows it.
#[must_use]
pub fn own_uid() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|m| m.uid())
}

/// Creates `folder` without rights for others, and the missing folders above it.
///
/// An existing one is accepted if it is a folder and no link, belongs to this user, and no other
/// user can write to it. It then stays unchanged.
///
/// # Errors
/// An error that names the failed condition in full, or the error of the system.
pub fn claim_folder(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    flaw(&found, own_uid()).map_or(Ok(()), |flaw| Err(io::Error::other(Untrusted(flaw))))
}

/// Creates the missing `folder`, without rights for others.
///
/// # Errors
/// The error of the system.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

/// Returns options that open private files: created without rights for others, and not through a
/// link.
#[must_use]
pub fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(NO_FOLLOW);
    options
}

/// Returns true if `error` rejects a folder because other users may reach it.
#[must_use]
pub fn is_untrusted(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|cause| cause.downcast_ref::<Untrusted>().is_some())
}

/// Reason for rejecting a folder.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Untrusted(String);

fn flaw(found: &Metadata, own: Option<u32>) -> Option<String> {
    if found.is_symlink() {
        return Some("it is a link, which may lead to another user's folder".into());
    }
    if !found.is_dir() {
        return Some("it is a file and no folder".into());
    }
    if let Some(own) = own.filter(|own| *own != found.uid()) {
        let owner = found.uid();
        return Some(format!(
            "it belongs to user {owner} and not to the user of this process, {own}, so its owner could read and replace its content"
        ));
    }
    let mode = found.mode() & 0o777;
    (mode & OTHERS_WRITE != 0).then(|| {
        format!(
            "others than its owner may write to it (mode {mode:03o}), so they could replace its content"
        )
    })
}

/// `O_NOFOLLOW`, which no library of ours names on every system.
const NO_FOLLOW: i32 = if cfg!(any(
    target_os = "macos",
    target_os = "ios",
    target_os = "freebsd"
)) {
    0x100
} else if cfg!(any(
    target_arch = "aarch64",
    target_arch = "arm",
    target_arch = "powerpc64"
)) {
    0o100_000
} else {
    0o400_000
};

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_folder_and_its_files_are_closed_to_others() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("above/own");
        claim_folder(&folder).unwrap();
        claim_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
        let file = folder.join("file");
        private_file().write(true).create(true).open(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn a_folder_that_may_be_anothers_is_refused_with_the_reason() {
        let parent = tempfile::tempdir().unwrap();
        let real = parent.path().join("real");
        claim_folder(&real).unwrap();
        let check = |folder: &Path, part: &str| {
            let error = claim_folder(folder).unwrap_err();
            assert!(
                is_untrusted(&error) && error.to_string().contains(part),
                "{error}"
            );
        };
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        check(&link, "it is a link");
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        check(&file, "it is a file");
        for open in [0o777, 0o720] {
            fs::set_permissions(&real, Permissions::from_mode(open)).unwrap();
            check(&real, &format!("may write to it (mode {open:03o})"));
        }
        // A folder that others may list shows names only: new content in it is closed.
        fs::set_permissions(&real, Permissions::from_mode(0o755)).unwrap();
        claim_folder(&real).unwrap();
        assert_eq!(mode(&real), 0o755);
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let found = fs::symlink_metadata(folder.path()).unwrap();
        assert_eq!(own_uid(), Some(found.uid()));
        assert_eq!(flaw(&found, Some(found.uid())), None);
        let message = flaw(&found, Some(found.uid() + 1)).unwrap();
        let part = format!("it belongs to user {} and not to", found.uid());
        assert!(message.contains(&part), "{message}");
    }

    #[test]
    fn a_file_is_not_opened_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let opened = private_file().write(true).create(true).open(&link);
        assert!(opened.is_err());
        let opened = private_file().write(true).create(true).open(&file);
        assert!(opened.is_ok());
    }
}
