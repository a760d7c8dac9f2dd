//! Waiting URLs, first in first out: a few of them as text, the many in between as compressed
//! blocks.
//!
//! A URL in a block is its length (u16), flags (u8), depth (u16), redirects (u8) and text, with
//! little-endian numbers. URLs of one site resemble each other: a block of 64 KiB becomes one of 2
//! to 10 KiB.

use std::collections::VecDeque;

use super::discovery::Discovery;

const BLOCK_BYTES: usize = 64 << 10;
const LEVEL: i32 = 1;
const IS_START: u8 = 1;
const IS_SITEMAP: u8 = 2;

/// The waiting list.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The first ones.
    head: VecDeque<Discovery>,
    /// Compressed, in order.
    blocks: VecDeque<Box<[u8]>>,
    /// The last ones.
    tail: Vec<u8>,
    len: u64,
}

impl Waiting {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn push(&mut self, found: &Discovery) {
        write(found, &mut self.tail);
        self.len += 1;
        if self.tail.len() >= BLOCK_BYTES {
            let block = zstd::bulk::compress(&self.tail, LEVEL);
            let block = block.expect("bytes in memory can be compressed");
            self.blocks.push_back(block.into());
            self.tail.clear();
        }
    }

    pub(super) fn pop(&mut self) -> Option<Discovery> {
        self.fill(1);
        let found = self.head.pop_front()?;
        self.len -= 1;
        Some(found)
    }

    /// The first ones, at most `most`.
    pub(super) fn peek(&mut self, most: usize) -> Vec<Discovery> {
        self.fill(most);
        self.head.iter().take(most).cloned().collect()
    }

    /// Moves at least `least` URLs into `head`, if there are as many.
    fn fill(&mut self, least: usize) {
        while self.head.len() < least {
            if let Some(block) = self.blocks.pop_front() {
                // A block ends with the URL that fills it.
                let plain = zstd::bulk::decompress(&block, BLOCK_BYTES + usize::from(u16::MAX) + 6);
                let plain = plain.expect("what was compressed can be read");
                read(&plain, &mut self.head);
            } else if self.tail.is_empty() {
                return;
            } else {
                read(&self.tail, &mut self.head);
                self.tail.clear();
            }
        }
    }
}

fn write(found: &Discovery, to: &mut Vec<u8>) {
    let length =
        u16::try_from(found.url.len()).expect("URLs of a frontier have at most 2,048 bytes");
    let flags =
        if found.is_start { IS_START } else { 0 } | if found.is_sitemap { IS_SITEMAP } else { 0 };
    to.extend(length.to_le_bytes());
    to.push(flags);
    to.extend(found.depth.to_le_bytes());
    to.push(found.redirects);
    to.extend(found.url.as_bytes());
}

fn read(mut from: &[u8], to: &mut VecDeque<Discovery>) {
    while let Some((&[l0, l1, flags, d0, d1, redirects], rest)) = from.split_first_chunk() {
        let (url, rest) = rest.split_at(usize::from(u16::from_le_bytes([l0, l1])));
        from = rest;
        to.push_back(Discovery {
            url: String::from_utf8_lossy(url).into(),
            is_start: flags & IS_START != 0,
            is_sitemap: flags & IS_SITEMAP != 0,
            depth: u16::from_le_bytes([d0, d1]),
            redirects,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontier::tests::found;

    #[test]
    fn what_comes_in_goes_out_in_order_whatever_lies_between() {
        let mut waiting = Waiting::default();
        let (mut pushed, mut popped) = (0, 0);
        // More and more wait, then fewer and fewer; several blocks at the height.
        for (pushes, pops) in [(3, 1), (5000, 10), (9000, 2000), (1, 9000), (0, 9000)] {
            for _ in 0..pushes {
                waiting.push(&found(pushed));
                pushed += 1;
            }
            let next: Vec<_> = (popped..pushed).take(40).map(found).collect();
            assert_eq!(waiting.peek(40), next);
            for _ in 0..pops.min(pushed - popped) {
                assert_eq!(waiting.pop(), Some(found(popped)));
                popped += 1;
            }
            assert_eq!(waiting.len(), pushed - popped);
        }
        assert_eq!((waiting.pop(), popped), (None, 14_004));
    }

    #[test]
    fn a_waiting_url_takes_a_few_bytes() {
        let mut waiting = Waiting::default();
        (0..100_000).for_each(|number| waiting.push(&found(number)));
        let held: usize = waiting.blocks.iter().map(|block| block.len()).sum();
        assert!(held < 100_000 * 15, "{held}");
    }
}
