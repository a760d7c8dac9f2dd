//! The program's own memory.

use crate::support::feedline;

/// The options in `.cargo/config.toml` reached the build of the allocator: without them large
/// arrays cost several times as much.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
fn the_allocator_takes_large_pages_and_keeps_large_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let output = feedline(folder.path())
        .env("_RJEM_MALLOC_CONF", "confirm_conf:true")
        .arg("--version")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    for setting in ["thp:always", "oversize_threshold:0", "percpu_arena:percpu"] {
        assert!(
            said.contains(&format!("Set conf value: {setting}")),
            "{said}"
        );
    }
}
