//! TensorBoard's event files: records of length, masked CRC-32C, a protobuf `Event`, masked CRC-32C. Scalars are read, as
//! `simple_value` (PyTorch) or as a tensor of one number (TensorFlow 2); the last record of a killed run may be torn.

use std::io::BufRead;

use super::{Found, Place, Reader};
use crate::run::Run;

/// No event of scalars is larger; images are, and are passed over.
const MOST_BYTES: u64 = 16 << 20;

pub(super) const READER: Reader =
    Reader { name: "TensorBoard", files: "*tfevents*", takes: |name, _| name.contains("tfevents"), read: read_events };

fn read_events(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let mut found = Found::default();
    let mut run = place.run();
    // Several files of one folder are one run: each start writes its own.
    place.folder().clone_into(&mut run.place);
    let mut number = 0;
    loop {
        number += 1;
        match read_record(input) {
            Ok(Some(bytes)) => {
                if read_event(&bytes, number, &mut run).is_none() {
                    found.pass_over(number, "no event");
                }
            }
            Ok(None) => break,
            Err(why) => {
                found.pass_over(number, why);
                break;
            }
        }
    }
    if run.series.is_empty() {
        return Err(found
            .first
            .map_or_else(|| "no scalars in it".to_owned(), |(number, why)| format!("record {number}: {why}")));
    }
    found.runs.push(run);
    Ok(found)
}

/// The next record; `None` at the end, an error where it is torn or damaged.
fn read_record(input: &mut dyn BufRead) -> Result<Option<Vec<u8>>, String> {
    if input.fill_buf().map_err(|error| error.to_string())?.is_empty() {
        return Ok(None);
    }
    let torn = |_| "torn at the end of the file".to_owned();
    let mut head = [0; 12];
    input.read_exact(&mut head).map_err(torn)?;
    let length = u64::from_le_bytes(head[..8].try_into().unwrap_or_default());
    if masked_crc(&head[..8]).to_le_bytes() != head[8..] {
        return Err("its length fails its checksum: no event file, or damaged".to_owned());
    }
    if length > MOST_BYTES {
        let skipped = std::io::copy(&mut std::io::Read::take(&mut *input, length + 4), &mut std::io::sink());
        return skipped.map(|_| Some(Vec::new())).map_err(|error| error.to_string());
    }
    let mut bytes = vec![0; length as usize];
    let mut check = [0; 4];
    input.read_exact(&mut bytes).and_then(|()| input.read_exact(&mut check)).map_err(torn)?;
    if masked_crc(&bytes).to_le_bytes() != check {
        return Err("fails its checksum".to_owned());
    }
    Ok(Some(bytes))
}

/// The CRC-32C of TensorFlow's records: turned by 15 bits, and a constant added (tensorflow/core/lib/hash/crc32c.h).
pub fn masked_crc(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc_table();
    let crc = !bytes.iter().fold(!0u32, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8));
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut crc, mut bit) = (index as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// A field of a protobuf message.
enum Field<'a> {
    Whole(u64),
    Bytes(&'a [u8]),
    Four([u8; 4]),
    Eight([u8; 8]),
}

/// The next field and its number; `None` where the message ends or is none.
fn read_field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = read_varint(bytes)?;
    let value = match key & 7 {
        0 => Field::Whole(read_varint(bytes)?),
        1 => Field::Eight(take_bytes(bytes, 8)?.try_into().ok()?),
        2 => {
            let length = usize::try_from(read_varint(bytes)?).ok()?;
            Field::Bytes(take_bytes(bytes, length)?)
        }
        5 => Field::Four(take_bytes(bytes, 4)?.try_into().ok()?),
        _ => return None,
    };
    Some((key >> 3, value))
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take_bytes<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

/// Takes up an event's scalars; `None` if it is no event.
fn read_event(mut bytes: &[u8], number: usize, run: &mut Run) -> Option<()> {
    let (mut time, mut step, mut summaries) = (None, 0.0, Vec::new());
    while !bytes.is_empty() {
        match read_field(&mut bytes)? {
            (1, Field::Eight(bytes)) => time = Some(f64::from_le_bytes(bytes)),
            (2, Field::Whole(value)) => step = value as i64 as f64,
            (5, Field::Bytes(bytes)) => summaries.push(bytes),
            _ => {}
        }
    }
    let mut is_any = false;
    for mut summary in summaries {
        while !summary.is_empty() {
            if let (1, Field::Bytes(value)) = read_field(&mut summary)?
                && let Some((tag, value)) = read_scalar(value)
            {
                run.push(&tag, step, value, number);
                is_any = true;
            }
        }
    }
    if let Some(time) = time.filter(|time| is_any && time.is_finite()) {
        run.push("seconds", step, time, number);
    }
    Some(())
}

/// Tag and number of a summary's value.
fn read_scalar(mut bytes: &[u8]) -> Option<(String, f64)> {
    let (mut tag, mut number) = (None, None);
    while !bytes.is_empty() {
        match read_field(&mut bytes)? {
            (1, Field::Bytes(text)) => tag = Some(String::from_utf8_lossy(text).into_owned()),
            (2, Field::Four(value)) => number = Some(f64::from(f32::from_le_bytes(value))),
            (8, Field::Bytes(value)) => number = read_tensor(value),
            _ => {}
        }
    }
    Some((tag?, number?))
}

/// The number of a tensor that holds one: as bytes, as floats or as doubles.
fn read_tensor(mut bytes: &[u8]) -> Option<f64> {
    let (mut kind, mut found) = (1, None);
    while !bytes.is_empty() {
        match read_field(&mut bytes)? {
            (1, Field::Whole(value)) => kind = value,
            (4..=6, Field::Bytes(value)) => found = Some(value),
            (5, Field::Four(value)) => return Some(f64::from(f32::from_le_bytes(value))),
            (6, Field::Eight(value)) => return Some(f64::from_le_bytes(value)),
            _ => {}
        }
    }
    match (kind, found?) {
        (1, value) => Some(f64::from(f32::from_le_bytes(value.try_into().ok()?))),
        (2, value) => Some(f64::from_le_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // CRC-32C of "123456789" is 0xe3069283 (RFC 3720).
        assert_eq!(masked_crc(b"123456789"), 0xe306_9283_u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }

    #[test]
    fn a_written_file_is_read_and_any_cut_of_it_too() {
        let bytes =
            include_bytes!("../../../../testdata/experiment/tensorboard/seed1/events.out.tfevents.1700000000.host.1.0");
        let place = Place { path: "a/seed1/events.out.tfevents.1", top: "a", beside: &|_| None };
        let whole = read_events(&mut &bytes[..], &place).expect("read").runs.remove(0);
        assert_eq!(
            whole.series["eval/accuracy"].points().map(|(step, value)| (step, value as f32)).collect::<Vec<_>>(),
            [(10.0, 0.25), (20.0, 0.5), (30.0, 0.75)]
        );
        assert_eq!(whole.series["loss_tensor"].len(), 3);
        for cut in 0..bytes.len() {
            if let Ok(found) = read_events(&mut &bytes[..cut], &place) {
                assert!(found.runs[0].series.values().all(|series| series.len() <= 60));
            }
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x40;
            // Whatever comes of it, a checksum stands before every number.
            if let Ok(found) = read_events(&mut &damaged[..], &place) {
                assert!(found.passed_over > 0, "{at}");
            }
        }
    }
}
