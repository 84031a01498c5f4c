//! A state as a file. The bytes go to llama.cpp's parser, so everything is verified first.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`VERSION`], little-endian |
//! | 32 | the state's key |
//! | 8 | length of the state, little-endian |
//! | 32 | SHA-256 of all fields above and the state |
//! | rest | the state |

use std::io::{ErrorKind, Read};

use sha2::{Digest, Sha256};

use crate::warm::Key;

const MAGIC: [u8; 8] = *b"rrkwarm\n";
const VERSION: u32 = 1;
const HEADER: usize = 8 + 4 + 32 + 8 + 32;

/// Offset of the length.
const STATED: usize = 8 + 4 + 32;

/// Why a file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it is shorter than a header")]
    Short,
    #[error("it is not a state of a passage")]
    Magic,
    #[error("it has another version")]
    Version,
    #[error("it has another key than its name")]
    Key,
    #[error("its length is not the one that it states")]
    Length,
    #[error("its checksum differs")]
    Checksum,
}

fn checksum(start: &[u8], state: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(start).chain_update(state).finalize().into()
}

/// The header of a file with this state.
pub(super) fn header(key: &Key, state: &[u8]) -> Vec<u8> {
    let length = u64::try_from(state.len()).unwrap_or(u64::MAX);
    let mut header = [&MAGIC[..], &VERSION.to_le_bytes(), &key.name(), &length.to_le_bytes()].concat();
    let sum = checksum(&header, state);
    header.extend(sum);
    header
}

/// Reads the state of this key from a file of `length` bytes. No memory is allocated if the header has another
/// length, or one above `most`.
pub(super) fn read(
    mut source: impl Read,
    length: u64,
    most: u64,
    key: &Key,
) -> std::io::Result<Result<Vec<u8>, Damage>> {
    let mut file = vec![0; HEADER];
    match source.read_exact(&mut file) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Err(Damage::Short)),
        Err(error) => return Err(error),
    }
    let stated = file[STATED..][..8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    if length > most || stated.checked_add(HEADER as u64) != Some(length) {
        return Ok(Err(Damage::Length));
    }
    file.try_reserve_exact(usize::try_from(stated).unwrap_or(usize::MAX))?;
    source.take(stated).read_to_end(&mut file)?;
    Ok(state(file, key))
}

/// The state in a file of this key.
///
/// # Errors
/// [`Damage`] for every file that is not a [`header`] and a state.
fn state(mut file: Vec<u8>, key: &Key) -> Result<Vec<u8>, Damage> {
    let (start, rest) = file.split_at_checked(HEADER - 32).ok_or(Damage::Short)?;
    let (sum, state) = rest.split_at_checked(32).ok_or(Damage::Short)?;
    let (magic, rest) = start.split_at(8);
    let (version, rest) = rest.split_at(4);
    let (owner, length) = rest.split_at(32);
    if magic != MAGIC {
        return Err(Damage::Magic);
    }
    if version != VERSION.to_le_bytes() {
        return Err(Damage::Version);
    }
    if owner != key.name() {
        return Err(Damage::Key);
    }
    if length != u64::try_from(state.len()).unwrap_or(u64::MAX).to_le_bytes() {
        return Err(Damage::Length);
    }
    if sum != checksum(start, state) {
        return Err(Damage::Checksum);
    }
    file.drain(..HEADER);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};

    use super::*;

    fn file(key: &Key, of: &[u8]) -> Vec<u8> {
        [header(key, of), of.to_vec()].concat()
    }

    #[test]
    fn a_state_survives_its_file_and_only_under_its_key() {
        let (key, other) = (Key::of_generator("a"), Key::of_generator("b"));
        for of in [&b""[..], b"x", &[7; 1_000]] {
            assert_eq!(state(file(&key, of), &key), Ok(of.to_vec()));
            assert_eq!(state(file(&key, of), &other), Err(Damage::Key));
        }
        let mut newer = file(&key, b"abc");
        newer[8] += 1;
        assert_eq!(state(newer, &key), Err(Damage::Version));
        assert_eq!(state(b"GGUF".repeat(40), &key), Err(Damage::Magic));
        assert_eq!(state(file(&key, b"abc")[..HEADER - 1].to_vec(), &key), Err(Damage::Short));
    }

    /// 100,000 files that are cut off, flipped, lengthened, or spliced from two: none is accepted as a state.
    #[test]
    fn no_damaged_file_is_used() {
        let mut source = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let mut below = |bound: usize| usize::try_from(source.next_u64() % u64::try_from(bound).unwrap()).unwrap();
        let keys = [Key::of_generator("a"), Key::of_generator("b")];
        for case in 0..100_000 {
            let states = [0, 1].map(|_| (0..below(40)).map(|_| u8::try_from(below(256)).unwrap()).collect::<Vec<u8>>());
            let [good, other] = [0, 1].map(|which| file(&keys[which], &states[which]));
            let mut bad = good.clone();
            match case % 5 {
                0 => bad.truncate(below(good.len())),
                1 => bad[below(good.len())] ^= 1 << below(8),
                2 => bad.extend((0..=below(9)).map(|_| 0)),
                3 => bad = [&good[..below(good.len())], &other[below(other.len())..]].concat(),
                _ => {
                    let (from, to) = (below(good.len()), below(good.len()));
                    bad.copy_within(from..good.len().min(from + 8), to.min(from));
                    bad.rotate_left(below(good.len()));
                }
            }
            if bad != good {
                assert!(state(bad, &keys[0]).is_err(), "case {case}");
            }
        }
    }
}
