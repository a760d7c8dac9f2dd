//! JSON strings.

use super::{Parser, beginning};

impl Parser<'_> {
    /// Reads a quoted string; its flaw is left in `flaw`.
    pub(crate) fn string(&mut self) -> Result<String, String> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let plain = rest
                .iter()
                .position(|b| *b < 0x20 || *b == b'"' || *b == b'\\')
                .unwrap_or(rest.len());
            out.push_str(&self.text[self.at..self.at + plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    self.check(start, &mut out);
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                _ => return Err(self.unexpected("the rest of a string")),
            }
        }
    }

    /// Checks the string `out`, read from byte `start` on, for flaws.
    fn check(&mut self, start: usize, out: &mut String) {
        let first = self.mended.partition_point(|place| *place < start);
        if let Some(place) = self.mended.get(first).filter(|place| **place < self.at) {
            let detail = format!("invalid UTF-8 in the text {}", self.place(*place));
            self.flaw = Some(("invalid_utf8", detail));
        }
        let most = self.bounds.max_text_bytes;
        if out.len() as u64 > most.bytes() {
            let detail = format!(
                "a text of {} bytes, more than {most}, {}",
                out.len(),
                self.place(start)
            );
            self.flaw = Some(("text_too_long", detail));
            out.truncate(beginning(out).len());
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        self.at += 1;
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.unexpected("an escape")),
        };
        self.at += 1;
        Ok(c)
    }

    /// `uXXXX`, twice for a character beyond 16 bits. Half of such a pair is U+FFFD and a flaw.
    fn unicode(&mut self) -> Result<char, String> {
        let start = self.at - 1;
        let first = self.hex4()?;
        let is_pair = (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u");
        let mut code = first;
        if is_pair {
            let after = self.at;
            self.at += 1;
            let second = self.hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            } else {
                self.at = after;
            }
        }
        Ok(char::from_u32(code).unwrap_or_else(|| {
            let detail = format!("half a surrogate pair {}", self.place(start));
            self.flaw.get_or_insert(("lone_surrogate", detail));
            char::REPLACEMENT_CHARACTER
        }))
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let start = self.at + 1;
        let digits = self
            .text
            .get(start..start + 4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok());
        match code {
            Some(code) => {
                self.at = start + 4;
                Ok(code)
            }
            None => Err(self.unexpected("four hexadecimal digits")),
        }
    }
}
