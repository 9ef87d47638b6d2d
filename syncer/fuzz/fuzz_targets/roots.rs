//! A record of the list of snapshots, or of a job's rules: a decoded one survives its encoding. The input's first byte
//! chooses the kind; the target adds the checksum, which a fuzzer would not find.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::snapshot::Roots;

fuzz_target!(|data: &[u8]| {
    let _ = Roots::decode(data);
    let Some((kind, body)) = data.split_first() else { return };
    let kind = if kind % 2 == 0 { b"snap" } else { b"rule" };
    let mut record = [&kind[..], &(body.len() as u32).to_le_bytes(), body].concat();
    let check = blake3::hash(&record);
    record.extend_from_slice(&check.as_bytes()[..8]);
    let file = [&b"vfroots\0\x02\0\0\0"[..], &record].concat();
    let roots = Roots::decode(&file).expect("the beginning is right");
    let again = Roots::decode(&roots.encode()).expect("a list that was written can be read");
    assert_eq!((&again.snapshots, &again.rules), (&roots.snapshots, &roots.rules));
    assert_eq!(again.damages() > 0, !roots.damaged.is_empty());
});
