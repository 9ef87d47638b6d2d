//! The steps of a hostile source, followed by a sink: none reads outside of a basis, makes more than was said, or puts together
//! anything that has not the root that was said.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use syncer::delta::{
    chunk::ChunkSizes,
    diff::{Extent, Op, Piece},
    list::{ChunkList, list},
    patch::{Assembly, PatchError, Task},
};

/// More would only take longer: the sizes of the chunks stay below.
const MAX_TARGET_BYTES: u64 = 1 << 20;

#[derive(Debug, Arbitrary)]
struct Copied {
    basis: u8,
    offset: u64,
    len: u64,
    /// Whether offset and length are brought near to what there is, so that deeper code is reached.
    near: bool,
}

#[derive(Debug, Arbitrary)]
enum Part {
    Copy(Copied),
    Literal { offset: u64, len: u64, near: bool },
}

#[derive(Debug, Arbitrary)]
enum Said {
    Copy(Copied),
    Chunks { basis: u8, from: u8, count: u8 },
    Chunk(Vec<Part>),
}

fn bases() -> [(Vec<u8>, ChunkList); 2] {
    [(7_u64, 40_000_usize), (8, 300)].map(|(seed, len)| {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        let (list, _) = list(&bytes, ChunkSizes::FINE);
        (bytes, list)
    })
}

fn extent(copied: &Copied, bases: &[(Vec<u8>, ChunkList)]) -> Extent {
    let Copied { basis, offset, len, near } = *copied;
    match near {
        false => Extent { basis: u32::from(basis), offset, len },
        true => {
            let basis = usize::from(basis) % bases.len();
            let there = bases[basis].0.len() as u64;
            let offset = offset % (there + 2);
            Extent { basis: basis as u32, offset, len: len % (there - offset.min(there) + 2) }
        }
    }
}

fn step(said: &Said, bases: &[(Vec<u8>, ChunkList)], made: u64) -> Op {
    match said {
        Said::Copy(copied) => Op::Copy(extent(copied, bases)),
        Said::Chunks { basis, from, count } => {
            let basis = usize::from(*basis) % bases.len();
            let chunks = bases[basis].1.chunks();
            let len =
                |chunks: &[syncer::delta::list::Chunk]| chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
            let from = usize::from(*from).min(chunks.len());
            let to = (from + usize::from(*count)).min(chunks.len());
            Op::Copy(Extent {
                basis: basis as u32,
                offset: len(&chunks[..from]),
                len: len(&chunks[from..to]),
            })
        }
        Said::Chunk(parts) => {
            let mut at = made;
            let pieces = parts.iter().map(|part| {
                let piece = match part {
                    Part::Copy(copied) => Piece::Copy(extent(copied, bases)),
                    Part::Literal { offset, len, near: false } => {
                        Piece::Literal { offset: *offset, len: *len }
                    }
                    Part::Literal { len, .. } => Piece::Literal { offset: at, len: len % 20_000 },
                };
                at = at.wrapping_add(piece.target_len());
                piece
            });
            Op::Chunk(pieces.collect())
        }
    }
}

fn follow(task: &Task, bases: &[(Vec<u8>, ChunkList)], target_len: u64) -> Result<Vec<u8>, PatchError> {
    assert!(task.len > 0 && task.offset + u64::from(task.len) <= target_len);
    assert!(task.len <= ChunkSizes::FINE.max());
    let mut bytes = Vec::new();
    task.make::<PatchError>(&mut bytes, |piece, place| {
        match piece {
            Piece::Copy(extent) => {
                let (basis, _) = &bases[extent.basis as usize];
                place.copy_from_slice(&basis[extent.offset as usize..][..extent.len as usize]);
            }
            Piece::Literal { offset, len } => {
                assert!(offset + len <= target_len);
                place.fill(*offset as u8);
            }
        }
        Ok(())
    })?;
    Ok(bytes)
}

fuzz_target!(|data: &[u8]| {
    let mut unstructured = Unstructured::new(data);
    let Ok((target_len, said)) = <(u64, Vec<Said>)>::arbitrary(&mut unstructured) else { return };
    let bases = bases();
    let target_len = target_len % (MAX_TARGET_BYTES + 1);
    let mut assembly = Assembly::new(bases.iter().map(|(_, list)| list), target_len, ChunkSizes::FINE);
    let mut target = Vec::new();
    for said in &said {
        if assembly.admit(step(said, &bases, target.len() as u64)).is_err() {
            return;
        }
        loop {
            match assembly.next_task() {
                Ok(Some(task)) => match follow(&task, &bases, target_len) {
                    Ok(bytes) => {
                        assembly.accept(&task.check(&bytes).expect("it was just checked"));
                        target.extend(bytes);
                    }
                    Err(_) => return,
                },
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let (expected, root) = list(&target, ChunkSizes::FINE);
    assert!(target.len() as u64 <= target_len);
    // The cuts may be the source's own; where they are those of the content, the list is the content's.
    if let Ok(made) = assembly.finish(&root) {
        assert_eq!((made, target.len() as u64), (expected, target_len));
    }
});
