//! The decoder of event streams says what the standard says, however a stream is cut into chunks.

use fuzz::sse::agrees;
use proptest::collection::vec;
use proptest::prelude::*;

/// What stands in the value of a field, or in place of a field.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[a-z :]{0,8}".prop_map(String::into_bytes),
        2 => "\\PC{0,6}".prop_map(String::into_bytes),
        1 => "[0-9]{0,22}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..6),
        1 => Just(b"a\0b".to_vec()),
        1 => Just("\u{FEFF}".into()),
        1 => Just(b"message".to_vec()),
        // The beginnings of characters that do not go on.
        1 => prop_oneof![Just(b"\xC3".to_vec()), Just(b"\xE2\x82".to_vec()), Just(b"\xF0\x9F\x98".to_vec())],
    ]
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        4 => Just(&b"data"[..]),
        2 => Just(&b"id"[..]),
        2 => Just(&b"event"[..]),
        2 => Just(&b"retry"[..]),
        1 => Just(&b""[..]),
        1 => Just(&b" data"[..]),
        1 => Just(&b"Data"[..]),
    ];
    let colon = prop_oneof![2 => Just(&b": "[..]), 1 => Just(&b":"[..]), 1 => Just(&b":  "[..])];
    prop_oneof![
        8 => (field, colon, text()).prop_map(|(field, colon, text)| [field, colon, &text].concat()),
        4 => Just(Vec::new()),
        1 => Just(b"data".to_vec()),
        1 => Just(b"id".to_vec()),
        1 => text(),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let mark = prop_oneof![2 => Just(&b""[..]), 1 => Just(&b"\xEF\xBB\xBF"[..]), 1 => Just(&b"\xEF\xBB"[..])];
    let end = prop_oneof![Just(&b"\n"[..]), Just(&b"\r\n"[..]), Just(&b"\r"[..])];
    (mark, vec((line(), end), 0..24), text()).prop_map(|(mark, lines, rest)| {
        let mut stream = mark.to_vec();
        for (line, end) in lines {
            stream.extend(line);
            stream.extend(end);
        }
        stream.extend(rest);
        stream
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_a_stream_gives_the_same_events(
        stream in stream(),
        lengths in vec(0_usize..12, 1..64),
        limit in 0_usize..200,
    ) {
        let mut chunks = Vec::new();
        let mut rest = &stream[..];
        for length in lengths {
            let (chunk, tail) = rest.split_at(length.min(rest.len()));
            chunks.push(chunk);
            rest = tail;
        }
        chunks.push(rest);
        agrees(&stream, &chunks, limit);
    }
}
