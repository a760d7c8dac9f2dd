//! A small PNG encoder, so that tests have PNGs without files or a codec that writes them.
//!
//! ISO/IEC 15948 with 8 bits a sample and no filter. Pixels are stored without compression (RFC 1951, section 3.2.4).

/// Encodes u8 RGB `[height, width, 3]`.
pub fn encode_rgb(pixels: &[u8], width: usize) -> Vec<u8> {
    encode(pixels, width, 3, 2)
}

/// Encodes u8 RGBA `[height, width, 4]`, whose alpha is not multiplied into the colours.
pub fn encode_rgba(pixels: &[u8], width: usize) -> Vec<u8> {
    encode(pixels, width, 4, 6)
}

/// Encodes black pixels with this alpha `[height, width]`.
pub fn encode_black(alpha: &[u8], width: usize) -> Vec<u8> {
    let pixels = alpha.iter().flat_map(|alpha| [0, 0, 0, *alpha]);
    encode_rgba(&pixels.collect::<Vec<u8>>(), width)
}

fn encode(pixels: &[u8], width: usize, samples: usize, colour_type: u8) -> Vec<u8> {
    let row = width * samples;
    assert!(row > 0 && !pixels.is_empty() && pixels.len().is_multiple_of(row));
    let sides = [width, pixels.len() / row].map(|side| u32::try_from(side).unwrap().to_be_bytes());
    let mut header = sides.concat();
    header.extend([8, colour_type, 0, 0, 0]);
    let rows = pixels.chunks(row).flat_map(|row| [&[0][..], row].concat());
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    add_chunk(&mut file, b"IHDR", &header);
    add_chunk(&mut file, b"IDAT", &stored(&rows.collect::<Vec<u8>>()));
    add_chunk(&mut file, b"IEND", &[]);
    file
}

fn add_chunk(file: &mut Vec<u8>, name: &[u8; 4], content: &[u8]) {
    file.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
    let start = file.len();
    file.extend(name);
    file.extend(content);
    let sum = crc32(&file[start..]);
    file.extend(sum.to_be_bytes());
}

/// The bytes as a zlib stream of stored blocks.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap();
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler32(bytes).to_be_bytes());
    stream
}

fn crc32(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 * (sum & 1))
        })
    });
    !sum
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    (high << 16) | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_their_standards() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn chunks_hold_the_sides_and_each_row_behind_its_filter() {
        let file = encode_black(&[7, 255], 1);
        let parts = [
            &b"\x89PNG\r\n\x1a\n"[..],
            b"\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x02\x08\x06\0\0\0\x99\x81\xb6\x27",
            b"\0\0\0\x15IDAT\x78\x01\x01\x0a\0\xf5\xff",
            b"\0\0\0\0\x07\0\0\0\0\xff\x01\x33\x01\x07\x4c\xe1\xd8\xaf",
            b"\0\0\0\0IEND\xae\x42\x60\x82",
        ];
        assert_eq!(file, parts.concat());
    }

    #[test]
    fn more_bytes_than_a_block_holds_are_several_blocks() {
        let stream = stored(&[1; 65_536]);
        assert_eq!(stream[..7], [0x78, 0x01, 0, 0xff, 0xff, 0, 0]);
        let last = &stream[7 + 65_535..];
        assert_eq!(last[..6], [1, 1, 0, 0xfe, 0xff, 1]);
        assert_eq!(last.len(), 6 + 4);
    }
}
