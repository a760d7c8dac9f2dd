//! Ports of programs that a test starts.

use std::{
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports below those that Linux chooses for outgoing connections and for listeners on port 0.
const PORTS: Range<u16> = 10_000..20_000;

/// Returns a port of loopback without a listener. No other call in this process returns it, and no
/// listener on port 0 gets it before the program of the test listens.
pub fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Test binaries that run at the same time begin at different ports.
    let first = process::id().wrapping_mul(97);
    let mut ports = PORTS.map(|_| {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let offset = first.wrapping_add(call) % u32::from(PORTS.end - PORTS.start);
        PORTS.start + u16::try_from(offset).unwrap()
    });
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_returned_once_and_a_taken_one_never() {
        let ports = [free_port(), free_port()];
        assert_ne!(ports[0], ports[1]);
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        let next = PORTS.start + (ports[1] + 1 - PORTS.start) % (PORTS.end - PORTS.start);
        let _taken = TcpListener::bind(("127.0.0.1", next));
        assert_ne!(free_port(), next);
    }
}
