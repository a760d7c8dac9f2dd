//! Published peaks of NVIDIA GPUs.
//!
//! Matrix products without sparsity, in TFLOP/s, from NVIDIA's data sheets of the products and the architecture papers
//! (GA102, Ada). Sheets that print rates with sparsity are halved. Products of f32 may run on tensor cores as TF32, so
//! that rate is their peak where a GPU has it; the f32 rate of the other cores is lower.

use feedline_schemas::config::Precision;

/// Rates of one GPU in TFLOP/s.
struct Rates {
    /// Names that the driver gives, without the maker.
    names: &'static [&'static str],
    bf16: Option<f64>,
    f16: f64,
    /// TF32 where the GPU has it.
    f32: f64,
}

const fn ampere(names: &'static [&'static str], short: f64, tf32: f64) -> Rates {
    Rates {
        names,
        bf16: Some(short),
        f16: short,
        f32: tf32,
    }
}

const fn before_ampere(names: &'static [&'static str], f16: f64, f32: f64) -> Rates {
    Rates {
        names,
        bf16: None,
        f16,
        f32,
    }
}

const RATES: [Rates; 14] = [
    ampere(&["B200"], 2250.0, 1100.0),
    ampere(&["H200", "H100 80GB HBM3", "GH200 480GB"], 989.4, 494.7),
    ampere(&["H200 NVL", "H100 NVL"], 835.5, 417.5),
    ampere(&["H100 PCIe"], 756.5, 378.0),
    ampere(
        &[
            "A100-SXM4-40GB",
            "A100-SXM4-80GB",
            "A100-PCIE-40GB",
            "A100 80GB PCIe",
        ],
        312.0,
        156.0,
    ),
    ampere(&["A40"], 149.7, 74.8),
    ampere(&["A30"], 165.0, 82.0),
    ampere(&["A10"], 125.0, 62.5),
    ampere(&["L40S"], 362.0, 183.0),
    ampere(&["L4"], 121.0, 60.0),
    ampere(&["GeForce RTX 4090"], 165.2, 82.6),
    ampere(&["GeForce RTX 3090"], 71.0, 35.6),
    before_ampere(&["V100-SXM2-16GB", "V100-SXM2-32GB"], 125.0, 15.7),
    before_ampere(&["T4"], 65.0, 8.1),
];

/// Operations per second of the GPU that the driver calls `name`, with products of `precision`. `None` for one that is
/// not in the table: a variant may be slower than its namesake, and a part of a GPU (MIG) always is.
pub(crate) fn of(name: &str, precision: Precision) -> Option<f64> {
    let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
    let name = name.strip_prefix("Tesla ").unwrap_or(name);
    let rates = RATES.iter().find(|rates| rates.names.contains(&name))?;
    let rate = match precision {
        Precision::Bf16 => rates.bf16?,
        Precision::F16 => rates.f16,
        Precision::F32 => rates.f32,
    };
    Some(rate * 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_known_by_its_whole_name() {
        let bf16 = |name| of(name, Precision::Bf16);
        assert_eq!(bf16("NVIDIA H200"), Some(989.4e12));
        assert_eq!(bf16("NVIDIA H200 NVL"), Some(835.5e12));
        assert_eq!(bf16("NVIDIA A100-SXM4-80GB"), Some(312e12));
        assert_eq!(of("NVIDIA A100-SXM4-80GB", Precision::F32), Some(156e12));
        assert_eq!(of("Tesla T4", Precision::F16), Some(65e12));
        for unknown in [
            "Tesla T4",
            "NVIDIA A10G",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            "cpu",
        ] {
            assert_eq!(bf16(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn short_numbers_are_no_slower_and_no_name_is_twice() {
        let mut names: Vec<_> = RATES.iter().flat_map(|rates| rates.names).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for rates in RATES {
            assert!(
                rates.bf16.unwrap_or(rates.f16) <= rates.f16,
                "{:?}",
                rates.names
            );
            assert!(rates.f32 < rates.f16, "{:?}", rates.names);
        }
    }
}
