//! Decoded pixels, and the buffers that hold them.

/// The first `bytes` of a buffer, which grows to hold them and never shrinks: to clear it for each image would cost
/// more than a hundredth of the time. They hold what earlier images left.
pub(crate) fn room(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

/// Decoded pixels of a part of a stored image, u8 RGB, row-major from the start of
/// [`Scratch::pixels`](crate::scratch::Scratch::pixels).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Position of the first pixel in the (scaled) stored image.
    pub(crate) left: u32,
    pub(crate) top: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// The decoder shrank the image to this many eighths.
    pub(crate) eighths: u32,
}

impl Decoded {
    pub(crate) const fn bytes(&self) -> usize {
        self.width as usize * self.height as usize * 3
    }
}
