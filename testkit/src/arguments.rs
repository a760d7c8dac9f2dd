//! Numbers on a bench's command line.

/// Command-line arguments of a bench.
#[derive(Debug)]
pub struct Arguments {
    /// Cargo passes `--bench`; a test run passes nothing and gets little to do.
    is_bench: bool,
    numbers: Vec<u32>,
}

impl Arguments {
    /// Reads those of this process.
    pub fn read() -> Self {
        Self {
            is_bench: std::env::args().any(|a| a == "--bench"),
            numbers: std::env::args().filter_map(|a| a.parse().ok()).collect(),
        }
    }

    /// The number at `place`; the default of a bench or of a test run where none is given.
    pub fn number(&self, place: usize, bench: u32, test: u32) -> u32 {
        let default = if self.is_bench { bench } else { test };
        self.numbers.get(place).copied().unwrap_or(default)
    }
}
