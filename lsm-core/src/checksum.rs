//! CRC32C, masked where it is stored beside the bytes it covers.
//!
//! Stored checksums are masked (rotated and offset, as LevelDB's format does), because the CRC of
//! a string that holds its own CRC is a constant, and files of ours get embedded in files of ours.

const MASK_DELTA: u32 = 0xa282_ead8;

/// The masked CRC32C of `bytes`.
#[inline]
pub fn masked(bytes: &[u8]) -> u32 {
    mask(extend(0, bytes))
}

/// The CRC32C of bytes that follow others whose CRC32C is `before` (0 at the start).
#[inline]
#[cfg(not(miri))]
pub fn extend(before: u32, bytes: &[u8]) -> u32 {
    use crc_fast::{CrcAlgorithm, Digest};
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// The same for the interpreter.
#[cfg(miri)]
pub fn extend(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// Masks a CRC32C for storage.
#[inline]
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value_and_extension() {
        // RFC 3720, appendix B.4: 32 bytes of zeros.
        assert_eq!(extend(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(extend(extend(0, b"hello "), b"world"), extend(0, b"hello world"));
        assert_ne!(masked(b"x"), extend(0, b"x"));
    }
}
