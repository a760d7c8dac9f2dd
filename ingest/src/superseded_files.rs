//! The folder of the files that no longer count.

use feedline_schemas::commit::DataFile;
use feedline_storage::Store;
use futures::{StreamExt as _, TryStreamExt as _, future::ready, stream};

use crate::error::Error;

/// Folder of the files that no longer count.
pub(crate) const ASIDE: &str = "superseded";

/// Files that are moved there at the same time: each is in memory, and waits for the disk.
const MOVES: usize = 4;

/// Moves files that no longer count out of the data folders; absent ones have been moved already.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn set_aside(landing: &Store, gone: &[DataFile]) -> Result<(), Error> {
    set_paths_aside(landing, gone.iter().map(|file| file.path.as_str())).await
}

/// Like [`set_aside`], for files with these paths. They are copied, so that their age counts from
/// now on.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn set_paths_aside<'p>(
    landing: &Store,
    gone: impl Iterator<Item = &'p str>,
) -> Result<(), Error> {
    let moves: Vec<_> = gone.map(|path| move_aside(landing, path)).collect();
    let moves = stream::iter(moves).buffer_unordered(MOVES);
    moves.try_for_each(|()| ready(Ok(()))).await
}

async fn move_aside(landing: &Store, path: &str) -> Result<(), Error> {
    if let Some(bytes) = landing.get_opt(path).await? {
        landing.put(&format!("{ASIDE}/{path}"), bytes).await?;
        landing.delete(path).await?;
    }
    Ok(())
}

/// Path of a file that no longer counts.
pub(crate) fn aside(file: &DataFile) -> String {
    format!("{ASIDE}/{}", file.path)
}
