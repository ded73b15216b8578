//! A checksum in front of every value, so that rotten bits are noticed.

use twox_hash::XxHash3_64;

/// Bytes that a seal adds.
pub(crate) const SEAL_BYTES: usize = 8;

/// `payload` behind its checksum.
pub(crate) fn seal(payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(SEAL_BYTES + payload.len());
    value.extend(checksum(payload).to_be_bytes());
    value.extend(payload);
    value
}

/// What was sealed; none if anything in `value` changed.
pub(crate) fn unseal(value: &[u8]) -> Option<&[u8]> {
    let (head, payload) = value.split_first_chunk::<SEAL_BYTES>()?;
    (u64::from_be_bytes(*head) == checksum(payload)).then_some(payload)
}

/// xxh3 of `bytes`.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_breaks_the_seal() {
        let value = seal(b"forty-two");
        assert_eq!(unseal(&value), Some(&b"forty-two"[..]));
        for bit in 0..value.len() * 8 {
            let mut rotten = value.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&rotten), None);
        }
        assert_eq!(unseal(&value[..4]), None);
    }
}
