//! The first level of the order: one source's units dealt to its domains for one epoch, and cut into windows.

use std::{ops::Range, sync::Arc};

use super::{blocks::Blocks, permutation::Permutation};
use crate::{block_table::BlockId, index::index};

/// Units between two marks.
const MARK: u64 = 16;

/// Spread of the samples of a source over its domains, in every epoch.
///
/// Sample `p` of an epoch is sample `p / D` of the domain whose turn is `p % D`. Turns step through the domains by
/// about `D / phi`, so that any few consecutive turns are spread evenly over them: a rank's contiguous share of a batch
/// then begins and ends in nearly the same domains, batch after batch, whether or not `D` divides the batch.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    /// The turn of each domain.
    turns: Vec<u32>,
    /// Samples before each domain, domain after domain, and the total.
    before: Vec<u64>,
    /// Units per window.
    window_units: u64,
}

/// A place between two samples of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DealCut {
    /// Whole epochs before it.
    epochs: u64,
    /// Samples that every domain has given since.
    rounds: u64,
    /// Turns since.
    turn: u64,
}

/// The units of a source in the order in which one epoch deals them: first those of domain 0, then of domain 1, and
/// so on. A block in which one domain ends and the next begins belongs to both. Every second domain is gone through
/// from its end, so that both come to such a block at the same time: at the epoch's begin, or at its end.
///
/// Holds 8 bytes for 16 units.
#[derive(Debug)]
pub(crate) struct Deal {
    blocks: Arc<Blocks>,
    permutation: Permutation,
    /// Samples before every 16th unit.
    marks: Vec<u64>,
}

/// One window of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowSpan {
    /// Its units, as positions in the deal.
    pub(crate) units: Range<u64>,
    /// Its samples, as positions in the deal.
    pub(crate) samples: Range<u64>,
    /// Its samples, as positions among the domain's samples.
    pub(crate) positions: Range<u64>,
}

impl Domains {
    /// Spreads `samples` over `count` domains with windows of `window_units`; both are at least 1.
    pub(crate) fn new(samples: u64, count: u32, window_units: u64) -> Self {
        let mut turns = vec![0; count as usize];
        let step = stride(count);
        let mut domain = 0;
        for turn in 0..count {
            turns[domain as usize] = turn;
            domain = u32::try_from((u64::from(domain) + step) % u64::from(count))
                .expect("a remainder is below the number of domains");
        }
        let mut before = vec![0];
        let mut total = 0;
        for turn in &turns {
            total += turns_before(samples, *turn, count);
            before.push(total);
        }
        Self {
            turns,
            before,
            window_units,
        }
    }

    /// Number of domains.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`new` was given a 32-bit count"
    )]
    pub(crate) fn count(&self) -> u32 {
        self.turns.len() as u32
    }

    /// Domains' shares of the first `samples` of endless epochs.
    pub(crate) fn cut(&self, samples: u64) -> DealCut {
        let total = self.before[self.turns.len()];
        let (epochs, samples) = (samples / total, samples % total);
        let count = u64::from(self.count());
        DealCut {
            epochs,
            rounds: samples / count,
            turn: samples % count,
        }
    }

    /// Samples of the domain before a cut, counted through the epochs.
    #[inline]
    pub(crate) fn before_cut(&self, domain: u32, cut: DealCut) -> u64 {
        let domain = domain as usize;
        let of_an_epoch = self.before[domain + 1] - self.before[domain];
        let extra = u64::from(cut.turn > u64::from(self.turns[domain]));
        cut.epochs * of_an_epoch + cut.rounds + extra
    }

    /// Number of the domain's samples among the epoch's first `samples`.
    #[inline]
    pub(crate) fn taken(&self, domain: u32, samples: u64) -> u64 {
        turns_before(samples, self.turns[domain as usize], self.count())
    }

    /// Position in the epoch of the sample at `position` of a domain.
    pub(crate) fn in_epoch(&self, domain: u32, position: u64) -> u64 {
        position * u64::from(self.count()) + u64::from(self.turns[domain as usize])
    }

    fn samples(&self, domain: u32) -> Range<u64> {
        self.before[domain as usize]..self.before[domain as usize + 1]
    }

    /// The domains with samples among `samples` of the deal.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are 32-bit counted domains"
    )]
    fn covering(&self, samples: &Range<u64>) -> Range<u32> {
        let first = self
            .before
            .partition_point(|before| *before <= samples.start)
            - 1;
        let end = self.before.partition_point(|before| *before < samples.end);
        first as u32..end as u32
    }

    /// Units in a domain's first window: shortened, so that domains change windows at different
    /// times.
    fn first_window(&self, domain: u32) -> u64 {
        ((u64::from(domain) + 1) * self.window_units).div_ceil(self.count().into())
    }

    /// Numbers of the units, counted from where the domain begins, that are in one window with unit `at`.
    fn window_around(&self, domain: u32, at: u64) -> Range<u64> {
        let first = self.first_window(domain);
        match at.checked_sub(first) {
            None => 0..first,
            Some(after) => {
                let start = first + after / self.window_units * self.window_units;
                start..start + self.window_units
            }
        }
    }
}

/// Count of numbers below `end` that leave the remainder `turn` when divided by `count`.
#[inline]
fn turns_before(end: u64, turn: u32, count: u32) -> u64 {
    let count = u64::from(count);
    end / count + u64::from(end % count > u64::from(turn))
}

/// A number that has no common divisor with `count`, near `count` over the golden ratio.
fn stride(count: u32) -> u64 {
    let count = u64::from(count);
    let near = (count * 618 / 1000).max(1);
    (near..=count)
        .find(|step| greatest_common_divisor(*step, count) == 1)
        .unwrap_or(1)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

impl Deal {
    /// Deals units by `permutation`, which is one of all units. Takes time for each of them.
    pub(crate) fn new(blocks: Arc<Blocks>, permutation: Permutation) -> Self {
        let mut marks = Vec::with_capacity(index(u64::from(blocks.unit_count()) / MARK + 1));
        let (mut at, mut samples) = (0, 0);
        permutation.for_each(0..blocks.unit_count().into(), |unit| {
            if at % MARK == 0 {
                marks.push(samples);
            }
            samples += blocks.samples_in(blocks.unit(unit_id(unit)));
            at += 1;
        });
        Self {
            blocks,
            permutation,
            marks,
        }
    }

    /// Number of samples in each block in this epoch.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Bytes held besides the blocks.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let permutation = 16 * index(u64::from(self.blocks.unit_count()).isqrt() + 1);
        8 * self.marks.capacity() + permutation
    }

    /// The window of `domain` that holds its sample at `position`.
    pub(crate) fn span(&self, domains: &Domains, domain: u32, position: u64) -> WindowSpan {
        let ours = domains.samples(domain);
        let backwards = domain % 2 == 1;
        let sample = if backwards {
            ours.end - 1 - position
        } else {
            ours.start + position
        };
        let first = self.find(ours.start);
        let last = self.find(ours.end - 1);
        let at = self.find(sample);
        let units = if backwards {
            let around = domains.window_around(domain, last - at);
            (last + 1).saturating_sub(around.end).max(first)..last + 1 - around.start
        } else {
            let around = domains.window_around(domain, at - first);
            first + around.start..(first + around.end).min(last + 1)
        };
        let samples =
            self.before(units.start).max(ours.start)..self.before(units.end).min(ours.end);
        let positions = if backwards {
            ours.end - samples.end..ours.end - samples.start
        } else {
            samples.start - ours.start..samples.end - ours.start
        };
        WindowSpan {
            units,
            samples,
            positions,
        }
    }

    /// The windows that hold samples of `block`, with their domains.
    pub(crate) fn spans_of<'a>(
        &'a self,
        domains: &'a Domains,
        block: BlockId,
    ) -> impl Iterator<Item = (u32, WindowSpan)> + 'a {
        let unit = self.blocks.unit_of(block);
        let at = self.permutation.inverse(unit.into());
        let start = self.before(at) + self.blocks.samples_in(self.blocks.unit(unit).start..block);
        let samples = start..start + u64::from(self.blocks.rows(block));
        let covering = if samples.is_empty() {
            0..0
        } else {
            domains.covering(&samples)
        };
        covering
            .filter(|domain| !domains.samples(*domain).is_empty())
            .map(move |domain| {
                let ours = domains.samples(domain);
                let sample = samples.start.max(ours.start);
                let position = if domain % 2 == 1 {
                    ours.end - 1 - sample
                } else {
                    sample - ours.start
                };
                (domain, self.span(domains, domain, position))
            })
    }

    /// The blocks of some units, each with the samples before it in the deal, in the order of the deal.
    pub(crate) fn blocks_of(&self, units: Range<u64>, mut take: impl FnMut(BlockId, u64)) {
        self.units_of(units, |unit, mut before| {
            for block in self.blocks.unit(unit) {
                take(block, before);
                before += u64::from(self.blocks.rows(block));
            }
        });
    }

    /// Some units, each with the samples before it in the deal, in the order of the deal.
    pub(crate) fn units_of(&self, units: Range<u64>, mut take: impl FnMut(u32, u64)) {
        let mut before = self.before(units.start);
        self.permutation.for_each(units, |unit| {
            take(unit_id(unit), before);
            before += self.unit_samples(unit);
        });
    }

    /// Samples before the unit at `position` of the deal.
    fn before(&self, position: u64) -> u64 {
        let units = u64::from(self.blocks.unit_count());
        if position >= units {
            return self.blocks.samples();
        }
        let mark = position / MARK;
        let mut samples = self.marks[index(mark)];
        self.permutation.for_each(mark * MARK..position, |unit| {
            samples += self.unit_samples(unit)
        });
        samples
    }

    /// Position in the deal of the unit that holds `sample` of it.
    fn find(&self, sample: u64) -> u64 {
        let mark = self.marks.partition_point(|before| *before <= sample) - 1;
        let mut before = self.marks[mark];
        let start = mark as u64 * MARK;
        let end = (start + MARK).min(self.blocks.unit_count().into());
        let (mut at, mut found) = (start, start);
        self.permutation.for_each(start..end, |unit| {
            if before <= sample {
                found = at;
            }
            before += self.unit_samples(unit);
            at += 1;
        });
        found
    }

    fn unit_samples(&self, unit: u64) -> u64 {
        self.blocks.samples_in(self.blocks.unit(unit_id(unit)))
    }
}

/// A unit's number, which fits because there are no more units than 32 bits count.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a permutation of 32-bit counted units stays below their count"
)]
fn unit_id(unit: u64) -> u32 {
    unit as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::permutation::PermutationKey;

    fn deal(rows: &[u32], key: u64) -> Deal {
        let blocks = Arc::new(Blocks::new(rows.to_vec()));
        let key = PermutationKey::derive(key, "deal", &[]);
        let permutation = Permutation::new(blocks.unit_count().into(), key);
        Deal::new(blocks, permutation)
    }

    #[test]
    fn the_windows_of_all_domains_hold_every_sample_once() {
        for (blocks, count, window) in [(1, 1, 1), (7, 3, 2), (64, 8, 4), (101, 10, 3), (40, 40, 2)]
        {
            let rows: Vec<u32> = (0..blocks).map(|b| b * 7 % 5 * 3).chain([9]).collect();
            let deal = deal(&rows, 5);
            let samples = deal.blocks.samples();
            let domains = Domains::new(samples, count.min(u32::try_from(samples).unwrap()), window);
            let mut seen = vec![false; index(samples)];
            let mut in_epoch = vec![false; index(samples)];
            for domain in 0..domains.count() {
                let total = domains.taken(domain, samples);
                let mut position = 0;
                while position < total {
                    let span = deal.span(&domains, domain, position);
                    assert_eq!(span.positions.start, position, "windows follow each other");
                    assert_eq!(deal.span(&domains, domain, span.positions.end - 1), span);
                    assert!(span.units.end - span.units.start <= window);
                    for sample in span.samples.clone() {
                        assert!(!std::mem::replace(&mut seen[index(sample)], true));
                    }
                    for position in span.positions.clone() {
                        let p = domains.in_epoch(domain, position);
                        assert!(!std::mem::replace(&mut in_epoch[index(p)], true));
                        assert_eq!(domains.taken(domain, p), position);
                    }
                    position = span.positions.end;
                }
            }
            assert!(seen.into_iter().chain(in_epoch).all(|seen| seen));
        }
    }

    #[test]
    fn a_block_knows_the_windows_that_hold_its_samples() {
        let rows: Vec<u32> = (0..90).map(|b| b % 4 * 5).collect();
        let deal = deal(&rows, 2);
        let domains = Domains::new(deal.blocks.samples(), 7, 3);
        let mut found = vec![Vec::new(); rows.len()];
        for domain in 0..domains.count() {
            let mut position = 0;
            while position < domains.taken(domain, deal.blocks.samples()) {
                let span = deal.span(&domains, domain, position);
                deal.blocks_of(span.units.clone(), |block, before| {
                    let end = before + u64::from(deal.blocks.rows(block));
                    if before.max(span.samples.start) < end.min(span.samples.end) {
                        found[block as usize].push((domain, span.clone()));
                    }
                });
                position = span.positions.end;
            }
        }
        for (block, found) in (0..).zip(found) {
            let spans: Vec<_> = deal.spans_of(&domains, block).collect();
            assert_eq!(spans, found, "block {block}");
        }
    }

    #[test]
    fn domains_change_windows_at_different_times() {
        let deal = deal(&[16; 64], 1);
        let domains = Domains::new(1024, 4, 4);
        let ends: Vec<_> = (0..4)
            .map(|d| deal.span(&domains, d, 0).positions.end)
            .collect();
        assert_eq!(ends, [16, 32, 48, 64]);
        assert_eq!(
            deal.span(&domains, 0, 16),
            WindowSpan {
                units: 1..5,
                samples: 16..80,
                positions: 16..80
            }
        );
    }

    #[test]
    fn few_turns_are_spread_evenly_over_the_domains() {
        for count in [2, 3, 50, 64, 100, 4096] {
            let domains = Domains::new(1_000_000, count, 1);
            for batch in [96, 256, 1000] {
                for start in [0, 1, 7, 5000] {
                    let mut slots = 0.0f64;
                    for domain in 0..count {
                        let even = f64::from(batch) * f64::from(domain) / f64::from(count);
                        assert!(
                            (slots - even).abs() < 4.0,
                            "{count} {batch} {domain}: {slots}"
                        );
                        let end = start + u64::try_from(batch).unwrap();
                        slots += (domains.taken(domain, end) - domains.taken(domain, start)) as f64;
                    }
                }
            }
        }
    }
}
