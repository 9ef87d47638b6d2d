use super::*;
use crate::{block_sizes::MIN_BLOCK_BYTES, delta::short_name::ShortName, wire::frame::HEADER_BYTES};

fn fill(bytes: &'static [u8]) -> impl FnOnce(&mut Vec<u8>) -> Result<(), &'static str> {
    |frame| {
        frame.extend_from_slice(bytes);
        Ok(())
    }
}

const ATTRS: Attrs<'_> = Attrs::trusted(b"\x06user.a\x05value");

#[test]
fn attributes_that_no_listing_may_have_come_with_no_content() {
    let forged: [&'static [u8]; 3] =
        [b"\x06user.b\x00\x06user.a\x00", b"\x0dsecurity.evil\x00", b"\x06user.a\x09short"];
    for bytes in forged {
        let fresh = Fresh { meta: Meta::default(), attrs: Attrs::trusted(bytes) };
        let mut pack = PackBuilder::default();
        pack.push(7, Some(fresh), None, 5, fill(b"hello")).unwrap();
        let frame = pack.finish();
        let mut files = Pack::open(&frame[HEADER_BYTES..]).unwrap();
        assert!(files.next().unwrap().is_err(), "{bytes:?}");
        let whole = Whole { file_len: 9, hash: TransferHash([1; 32]), fresh: Some(fresh), in_motion: false };
        let end = EndFrame { need: 4, attempt: 1, outcome: Ok(whole) }.encode();
        assert!(EndFrame::decode(&end[HEADER_BYTES..]).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_pack_holds_contents_and_failures() {
    let fresh = Fresh { meta: Meta { mode: 0o600, ..Meta::default() }, attrs: ATTRS };
    let mut pack = PackBuilder::default();
    pack.push(7, None, None, 5, fill(b"hello")).unwrap();
    pack.push(8, Some(fresh), None, 0, fill(b"")).unwrap();
    pack.mark_in_motion();
    pack.push_failed(9, "read", "gone");
    assert_eq!(pack.push(10, None, None, 3, |_| Err("unreadable")), Err("unreadable"));
    let frame = pack.finish();
    let files = Pack::open(&frame[HEADER_BYTES..]).unwrap();
    assert!(files.is_intact);
    let items: Vec<_> = files.collect::<Result<_, _>>().unwrap();
    let content =
        |bytes, fresh: Option<_>| Ok(ContentFrame { fresh, kept: None, bytes, in_motion: fresh.is_some() });
    assert_eq!(
        items,
        [
            Packed { need: 7, content: content(b"hello", None) },
            Packed { need: 8, content: content(b"", Some(fresh)) },
            Packed { need: 9, content: Err(Failed { operation: "read", error: "gone" }) },
        ]
    );
}

#[test]
fn of_a_file_that_has_grown_only_the_rest_is_packed() {
    let name = |bytes| ShortName::of(&blake3::hash(bytes));
    let fresh = Some(Fresh { meta: Meta::default(), attrs: Attrs::default() });
    let mut pack = PackBuilder::default();
    for (fresh, prefix) in
        [(fresh, &b"hel"[..]), (None, b"hello"), (None, b"Hello"), (None, b"hello and more")]
    {
        let prefix = Prefix { nth: 0, len: prefix.len() as u32, name: name(prefix) };
        pack.push(1, fresh, Some(prefix), 5, fill(b"hello")).unwrap();
    }
    let frame = pack.finish();
    let files = Pack::open(&frame[HEADER_BYTES..]).unwrap();
    let contents: Vec<_> = files.map(|item| item.unwrap().content.unwrap()).collect();
    let kept: Vec<_> = contents.iter().map(|content| (content.kept, content.bytes)).collect();
    let some = |len| Some(BasisPrefix { len, id: ContentId::of(b"hello") });
    assert_eq!(kept, [(some(3), &b"lo"[..]), (some(5), b""), (None, b"hello"), (None, b"hello")]);
    assert_eq!((contents[0].fresh, contents[1].fresh), (fresh, None));
}

#[test]
fn a_pack_cut_anywhere_gives_an_error_and_ends() {
    let mut pack = PackBuilder::default();
    pack.push(7, None, None, 5, fill(b"hello")).unwrap();
    let frame = pack.finish();
    for end in HEADER_BYTES..FILES_AT {
        assert!(Pack::open(&frame[HEADER_BYTES..end]).is_err());
    }
    for end in FILES_AT + 1..frame.len() {
        let mut items = Pack::open(&frame[HEADER_BYTES..end]).unwrap();
        assert!(!items.is_intact);
        assert!(items.next().unwrap().is_err());
        assert!(items.next().is_none());
    }
}

#[test]
fn a_pack_with_a_wrong_bit_is_not_intact() {
    let mut pack = PackBuilder::default();
    pack.push(7, None, None, 5, fill(b"hello")).unwrap();
    let mut frame = pack.finish();
    for at in HEADER_BYTES..frame.len() {
        frame[at] ^= 1;
        assert!(!Pack::open(&frame[HEADER_BYTES..]).unwrap().is_intact, "at {at}");
        frame[at] ^= 1;
    }
}

#[test]
fn blocks_and_ends_survive_the_trip() {
    let block = block(MIN_BLOCK_BYTES as u64);
    let expected = Block {
        need: 3,
        attempt: 1,
        file_len: MIN_BLOCK_BYTES as u64 + 4,
        offset: MIN_BLOCK_BYTES as u64,
        bytes: b"data",
    };
    assert_eq!(Block::decode(&block[HEADER_BYTES..]), Ok(expected));
    for outcome in [
        Ok(Whole { file_len: 9, hash: TransferHash([1; 32]), fresh: None, in_motion: true }),
        Ok(Whole {
            in_motion: false,
            file_len: 0,
            hash: TransferHash([2; 32]),
            fresh: Some(Fresh { meta: Meta::default(), attrs: ATTRS }),
        }),
        Err(Failed { operation: "read", error: "e" }),
    ] {
        let end = EndFrame { need: 4, attempt: 1, outcome };
        assert_eq!(EndFrame::decode(&end.encode()[HEADER_BYTES..]), Ok(end));
    }
}

fn block(offset: u64) -> Vec<u8> {
    let mut frame = vec![0; Block::PREFIX_BYTES];
    frame.extend_from_slice(b"data");
    Block::seal(frame, 3, 1, MIN_BLOCK_BYTES as u64 + 4, offset)
}

#[test]
fn a_block_that_is_not_at_its_place_is_refused() {
    for offset in [0, 17, 2 * MIN_BLOCK_BYTES as u64, u64::MAX] {
        assert!(Block::decode(&block(offset)[HEADER_BYTES..]).is_err(), "at {offset}");
    }
}
