//! Decoder for `text/event-stream`: bytes in, events out.
//!
//! Follows the WHATWG HTML standard, "Server-sent events" §9.2.5–9.2.6, with two additions that MCP
//! needs: a block without data still reports its `id` and `retry`, and a stream that outgrows its
//! limit is an error. Reconnecting is the caller's.

use std::borrow::Cow;
use std::mem;
use std::str::Utf8Chunk;

use memchr::memchr2;

/// What a stream may make the decoder hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseLimits {
    /// Most bytes of one event: its fields so far together with the line being read. A single line
    /// of any kind, comments included, is bound by it too.
    pub event_bytes: usize,
}

/// One block of the stream that said something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The event type; `None` is the default type `message`, whether it was left out or spelled
    /// out.
    pub name: Option<String>,
    /// The `data` lines joined with `\n`. `None` when the block had none: such a block is no event
    /// by the standard and is reported for its `id` and `retry` only. An empty `data` field is
    /// `Some("")`; MCP servers send it with an `id` before the first message to make the stream
    /// resumable (MCP 2025-11-25, transports), so it must not go to a JSON parser either.
    pub data: Option<String>,
    /// The `id` of this block. `Some("")` takes an earlier id back.
    pub id: Option<String>,
    /// The reconnection delay that this block asks for, in milliseconds.
    pub retry: Option<u64>,
}

/// Why a stream cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// An event, or a line that never ends, is over [`SseLimits::event_bytes`].
    #[error("an event is larger than {limit} bytes")]
    TooLarge {
        /// The limit that was passed.
        limit: usize,
    },
}

/// Turns the bytes of one stream into events, however the bytes are cut.
///
/// There is no call for the end of the stream: an event that its blank line has not ended is
/// dropped, as the standard says, by dropping the decoder.
#[derive(Debug)]
pub struct SseDecoder {
    limits: SseLimits,
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    /// The block being read.
    block: SseEvent,
    last_event_id: String,
    retry: Option<u64>,
    /// Only the first line may start with a byte order mark.
    at_start: bool,
    /// The last byte was CR, so that an LF now is the rest of the same line end.
    after_cr: bool,
    /// The stream broke its limit and stays broken.
    failed: bool,
}

impl SseDecoder {
    /// A decoder for a stream that has not begun. Each response needs a new one.
    pub fn new(limits: SseLimits) -> Self {
        Self {
            limits,
            line: Vec::new(),
            block: SseEvent::default(),
            last_event_id: String::new(),
            retry: None,
            at_start: true,
            after_cr: false,
            failed: false,
        }
    }

    /// Reads the next bytes and hands every event they complete to `out`, in order.
    ///
    /// Events that end before a fault are handed out; after an error every further call fails.
    pub fn push(&mut self, chunk: &[u8], out: &mut impl FnMut(SseEvent)) -> Result<(), SseError> {
        if self.failed {
            return Err(self.too_large());
        }
        let outcome = self.read(chunk, out);
        self.failed = outcome.is_err();
        outcome
    }

    /// What belongs into `Last-Event-ID` when this stream is resumed. The id of an event that was
    /// cut off does not count.
    pub fn last_event_id(&self) -> Option<&str> {
        Some(self.last_event_id.as_str()).filter(|id| !id.is_empty())
    }

    /// The latest reconnection delay in milliseconds. By the standard it counts from its line on,
    /// so it may be newer than the last event.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    fn read(&mut self, chunk: &[u8], out: &mut impl FnMut(SseEvent)) -> Result<(), SseError> {
        let mut rest = chunk;
        loop {
            if self.after_cr && !rest.is_empty() {
                self.after_cr = false;
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                break;
            };
            let (head, tail) = rest.split_at(end);
            self.after_cr = tail.first() == Some(&b'\r');
            rest = tail.get(1..).unwrap_or_default();

            self.check_size(head.len())?;
            if self.line.is_empty() {
                self.end_line(head, out)?;
            } else {
                let mut line = mem::take(&mut self.line);
                line.extend_from_slice(head);
                if !self.take_data(&mut line)? {
                    self.end_line(&line, out)?;
                }
            }
        }
        self.check_size(rest.len())?;
        self.line.extend_from_slice(rest);
        Ok(())
    }

    /// Checks the block as it is once `more` bytes have joined the current line. Complete lines
    /// are checked like growing ones, so that how the bytes are cut decides nothing.
    fn check_size(&self, more: usize) -> Result<(), SseError> {
        let texts = [&self.block.name, &self.block.data, &self.block.id];
        let fields: usize = texts.into_iter().flatten().map(String::len).sum();
        if fields + self.line.len() + more > self.limits.event_bytes {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Makes a line the data of its block without copying it, where it is the first of its data.
    fn take_data(&mut self, line: &mut Vec<u8>) -> Result<bool, SseError> {
        const FIELD: &[u8] = b"data:";
        if self.at_start || self.block.data.is_some() || !line.starts_with(FIELD) {
            return Ok(false);
        }
        let space = usize::from(line.get(FIELD.len()) == Some(&b' '));
        match String::from_utf8(mem::take(line)) {
            Ok(mut data) => {
                data.drain(..FIELD.len() + space);
                self.block.data = Some(data);
            }
            Err(error) => {
                *line = error.into_bytes();
                return Ok(false);
            }
        }
        self.check_size(0)?;
        Ok(true)
    }

    fn end_line(&mut self, line: &[u8], out: &mut impl FnMut(SseEvent)) -> Result<(), SseError> {
        let line = if mem::take(&mut self.at_start) {
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            self.end_block(out);
            return Ok(());
        }
        // A line end cannot lie inside a UTF-8 sequence, so decoding line by line replaces the
        // same bytes as decoding the whole stream.
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let field = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                let value = self.decode(value)?;
                match &mut self.block.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&value);
                    }
                    none => *none = Some(value.into_owned()),
                }
            }
            b"event" => self.block.name = Some(self.decode(value)?.into_owned()),
            b"id" if !value.contains(&b'\0') => {
                self.block.id = Some(self.decode(value)?.into_owned());
            }
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                if let Ok(delay) = self.decode(value)?.parse() {
                    self.block.retry = Some(delay);
                    self.retry = Some(delay);
                }
            }
            // Comments have an empty field name; unknown fields are skipped alike.
            _ => {}
        }
        // The newline that joins data, and what replaced invalid bytes, have made the block grow.
        self.check_size(0)
    }

    /// What replaces invalid bytes may be three times as long, so its size is known before it is
    /// made.
    fn decode<'v>(&self, value: &'v [u8]) -> Result<Cow<'v, str>, SseError> {
        if let Ok(text) = str::from_utf8(value) {
            return Ok(Cow::Borrowed(text));
        }
        let size = |part: Utf8Chunk<'_>| {
            let replaced = if part.invalid().is_empty() { 0 } else { 3 };
            part.valid().len() + replaced
        };
        if value.utf8_chunks().map(size).sum::<usize>() > self.limits.event_bytes {
            return Err(self.too_large());
        }
        Ok(String::from_utf8_lossy(value))
    }

    fn end_block(&mut self, out: &mut impl FnMut(SseEvent)) {
        let mut event = mem::take(&mut self.block);
        event.name = event
            .name
            .filter(|name| !name.is_empty() && name != "message");
        if let Some(id) = &event.id {
            self.last_event_id.clone_from(id);
        }
        if event.data.is_some() || event.id.is_some() || event.retry.is_some() {
            out(event);
        }
    }

    fn too_large(&self) -> SseError {
        SseError::TooLarge {
            limit: self.limits.event_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const ROOMY: SseLimits = SseLimits {
        event_bytes: 10_000_000,
    };

    fn message(data: &str) -> SseEvent {
        SseEvent {
            data: Some(data.to_owned()),
            ..SseEvent::default()
        }
    }

    fn named(name: &str, data: &str) -> SseEvent {
        SseEvent {
            name: Some(name.to_owned()),
            ..message(data)
        }
    }

    fn with_id(id: &str, event: SseEvent) -> SseEvent {
        SseEvent {
            id: Some(id.to_owned()),
            ..event
        }
    }

    fn with_retry(retry: u64, event: SseEvent) -> SseEvent {
        SseEvent {
            retry: Some(retry),
            ..event
        }
    }

    /// Everything an observer can see of a stream that arrives as `chunks`.
    type Seen = (
        Vec<SseEvent>,
        Result<(), SseError>,
        Option<String>,
        Option<u64>,
    );

    fn decode(limits: SseLimits, chunks: &[&[u8]]) -> Seen {
        let mut decoder = SseDecoder::new(limits);
        let mut events = Vec::new();
        let mut outcome = Ok(());
        for chunk in chunks {
            outcome = decoder.push(chunk, &mut |event| events.push(event));
        }
        let last = decoder.last_event_id().map(str::to_owned);
        (events, outcome, last, decoder.retry())
    }

    /// Decodes the stream whole, byte by byte, at every two-way split, and with an empty chunk
    /// between any two bytes; all must agree.
    fn decode_every_way(limits: SseLimits, stream: &[u8]) -> Seen {
        let whole = decode(limits, &[stream]);
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decode(limits, &bytes), whole, "byte by byte: {stream:?}");
        let spaced: Vec<&[u8]> = bytes.iter().flat_map(|&byte| [byte, &[]]).collect();
        assert_eq!(decode(limits, &spaced), whole, "spaced: {stream:?}");
        for at in 0..=stream.len() {
            let (head, tail) = stream.split_at(at);
            assert_eq!(decode(limits, &[head, tail]), whole, "at {at}: {stream:?}");
        }
        whole
    }

    fn events(stream: impl AsRef<[u8]>) -> Vec<SseEvent> {
        let (events, outcome, ..) = decode_every_way(ROOMY, stream.as_ref());
        assert_eq!(outcome, Ok(()));
        events
    }

    #[test]
    fn lines_end_with_lf_crlf_or_cr_in_any_mixture() {
        let two = vec![message("a\nb"), named("x", "c")];
        for stream in [
            "data: a\ndata: b\n\nevent: x\ndata: c\n\n",
            "data: a\r\ndata: b\r\n\r\nevent: x\r\ndata: c\r\n\r\n",
            "data: a\rdata: b\r\revent: x\rdata: c\r\r",
            "data: a\r\ndata: b\n\revent: x\rdata: c\r\n\n",
            "data: a\rdata: b\n\r\nevent: x\ndata: c\r\r\n",
        ] {
            assert_eq!(events(stream), two, "{stream:?}");
        }
    }

    #[test]
    fn a_cr_ends_the_event_without_waiting_for_an_lf() {
        let (events, ..) = decode(ROOMY, &[b"data: a\r\n\r"]);
        assert_eq!(events, [message("a")]);
        let (events, ..) = decode(ROOMY, &[b"data: a\r\n\r", b"\ndata: b\n\n"]);
        assert_eq!(events, [message("a"), message("b")]);
    }

    #[test]
    fn one_leading_byte_order_mark_is_skipped() {
        assert_eq!(events("\u{FEFF}data: a\n\n"), [message("a")]);
        assert_eq!(events("\u{FEFF}\ndata: a\n\n"), [message("a")]);
        assert_eq!(events("\u{FEFF}\u{FEFF}data: a\n\n"), []);
        assert_eq!(events("\n\u{FEFF}data: a\n\n"), []);
        assert_eq!(events("data: \u{FEFF}a\n\n"), [message("\u{FEFF}a")]);
    }

    #[test]
    fn data_fields() {
        let cases: [(&str, Vec<SseEvent>); 13] = [
            ("data: a\ndata: b\ndata:c\n\n", vec![message("a\nb\nc")]),
            ("data\n\n", vec![message("")]),
            ("data:\n\n", vec![message("")]),
            ("data: \n\n", vec![message("")]),
            ("data\ndata\n\n", vec![message("\n")]),
            ("data:  a\n\n", vec![message(" a")]),
            ("data:\ta\n\n", vec![message("\ta")]),
            ("data: a: b:c\n\n", vec![message("a: b:c")]),
            ("data: a\nevent: x\ndata: b\n\n", vec![named("x", "a\nb")]),
            (" data: a\n\n", vec![]),
            ("Data: a\n\n", vec![]),
            ("data : a\n\n", vec![]),
            ("\n\n\n", vec![]),
        ];
        for (stream, expected) in cases {
            assert_eq!(events(stream), expected, "{stream:?}");
        }
    }

    #[test]
    fn a_block_without_data_is_no_event_and_leaves_no_name_behind() {
        assert_eq!(events("event: x\n\ndata: a\n\n"), [message("a")]);
    }

    #[test]
    fn the_default_name_has_one_spelling() {
        for stream in [
            "data: a\n\n",
            "event\ndata: a\n\n",
            "event: x\nevent:\ndata: a\n\n",
            "event: message\ndata: a\n\n",
        ] {
            assert_eq!(events(stream), [message("a")], "{stream:?}");
        }
        assert_eq!(
            events("event: x\nevent: endpoint\ndata: /m\n\n"),
            [named("endpoint", "/m")]
        );
    }

    #[test]
    fn comments_keep_alives_and_unknown_fields_say_nothing() {
        assert_eq!(
            events(
                ": hi\n\n:\n\n:data: x\n\ndata: a\n: between\nfoo: bar\nfoo\ndata: b\n\n:end\n\n"
            ),
            [message("a\nb")]
        );
    }

    #[test]
    fn a_priming_event_surfaces_its_id_and_retry() {
        assert_eq!(
            events("id: e1\nretry: 500\ndata:\n\nid: e2\ndata: {}\n\n"),
            [
                with_retry(500, with_id("e1", message(""))),
                with_id("e2", message("{}"))
            ]
        );
        assert_eq!(
            events("id: e1\nretry: 500\n\n"),
            [with_retry(500, with_id("e1", SseEvent::default()))]
        );
    }

    #[test]
    fn the_last_event_id_outlives_events_without_one() {
        for (stream, last) in [
            ("data: a\n\n", None),
            ("id: 1\ndata: a\n\ndata: b\n\n", Some("1")),
            ("id: 1\ndata: a\n\nid: 2\n\n", Some("2")),
            ("id: 1\n\nid:\ndata: a\n\n", None),
            ("id: 1\n\nid\n\n", None),
            ("id: 1\n\nid: a\0b\ndata: a\n\n", Some("1")),
            ("id: 1\n\nid: 2\ndata: cut off\n", Some("1")),
            ("id:  1 \n\n", Some(" 1 ")),
        ] {
            let (_, _, seen, _) = decode_every_way(ROOMY, stream.as_bytes());
            assert_eq!(seen.as_deref(), last, "{stream:?}");
        }
    }

    #[test]
    fn retry_takes_digits_only_and_counts_from_its_line_on() {
        for (stream, retry) in [
            ("retry: 10\n\n", Some(10)),
            ("retry:0\n\n", Some(0)),
            ("retry: 10\n", Some(10)),
            ("retry: 10\n\nretry: 20\n\n", Some(20)),
            ("retry: 10\nretry: x\n\n", Some(10)),
            ("retry: 10", None),
            ("retry\n\n", None),
            ("retry:\n\n", None),
            ("retry: +10\n\n", None),
            ("retry: -10\n\n", None),
            ("retry: 1.5\n\n", None),
            ("retry: 10 \n\n", None),
            ("retry:  10\n\n", None),
            ("retry: 10ms\n\n", None),
            ("retry: ١٠\n\n", None),
            ("retry: 99999999999999999999\n\n", None),
        ] {
            let (_, _, _, seen) = decode_every_way(ROOMY, stream.as_bytes());
            assert_eq!(seen, retry, "{stream:?}");
        }
    }

    #[test]
    fn text_survives_a_cut_inside_a_character() {
        assert_eq!(
            events("event: é\nid: 日本\ndata: ß€😀\n\n"),
            [with_id("日本", named("é", "ß€😀"))]
        );
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(
            events(b"data: a\xFFb\xE2\x82\ndata: \xF0\x9F\n\n"),
            [message("a\u{FFFD}b\u{FFFD}\n\u{FFFD}")]
        );
    }

    #[test]
    fn an_event_cut_off_by_the_end_is_dropped() {
        assert_eq!(events("data: a\n\ndata: b\n"), [message("a")]);
        assert_eq!(events("data: a\n\ndata: b"), [message("a")]);
        assert_eq!(events(""), []);
    }

    #[test]
    fn an_event_at_the_limit_passes_and_one_over_it_fails() {
        let limits = SseLimits { event_bytes: 12 };
        let too_large = Err(SseError::TooLarge { limit: 12 });
        for (stream, expected, outcome) in [
            ("data: 123456\n\n", vec![message("123456")], Ok(())),
            ("data: 1234567\n\n", vec![], too_large.clone()),
            ("data: 1234567", vec![], too_large.clone()),
            (":comment-123", vec![], Ok(())),
            (":comment-1234", vec![], too_large.clone()),
            (":comment-1234\n\n", vec![], too_large.clone()),
            ("data:12\ndata:34\n\n", vec![message("12\n34")], Ok(())),
            (
                "data:1\ndata:2\ndata:3\ndata:4\n\n",
                vec![message("1\n2\n3\n4")],
                Ok(()),
            ),
            (
                "data:123456\ndata:7\n\n",
                vec![message("123456\n7")],
                Ok(()),
            ),
            ("data:123456\ndata:78\n\n", vec![], too_large.clone()),
            (
                "data:1\n\ndata:12345678\n\n",
                vec![message("1")],
                too_large.clone(),
            ),
            (
                "data:1\n\ndata:2\n\ndata:3\n\n",
                vec![message("1"), message("2"), message("3")],
                Ok(()),
            ),
        ] {
            let (events, seen, ..) = decode_every_way(limits, stream.as_bytes());
            assert_eq!((events, seen), (expected, outcome), "{stream:?}");
        }
    }

    #[test]
    fn empty_data_lines_and_replaced_bytes_count() {
        let limits = SseLimits { event_bytes: 12 };
        let (_, outcome, ..) = decode_every_way(limits, "data\n".repeat(20).as_bytes());
        assert_eq!(outcome, Err(SseError::TooLarge { limit: 12 }));
        let (_, outcome, ..) = decode_every_way(limits, b"data:\xFF\xFF\xFF\xFF\xFF\n\n");
        assert_eq!(outcome, Err(SseError::TooLarge { limit: 12 }));
    }

    #[test]
    fn names_and_ids_count() {
        let limits = SseLimits { event_bytes: 16 };
        for (stream, outcome) in [
            ("event:12345\nid:1234567\n\n", Ok(())),
            (
                "event:12345\nid:123456789\n\n",
                Err(SseError::TooLarge { limit: 16 }),
            ),
            ("event:12345\nevent:12345\n\n", Ok(())),
            ("id:12345678\n\nid:12345678\n\n", Ok(())),
            (
                "id:12345678\ndata:1234\n\n",
                Err(SseError::TooLarge { limit: 16 }),
            ),
        ] {
            let (_, seen, ..) = decode_every_way(limits, stream.as_bytes());
            assert_eq!(seen, outcome, "{stream:?}");
        }
        let (_, outcome, ..) = decode_every_way(limits, b"id:\xFF\xFF\xFF\xFF\xFF\xFF\n");
        assert_eq!(outcome, Err(SseError::TooLarge { limit: 16 }));
    }

    #[test]
    fn a_broken_stream_stays_broken() {
        let mut decoder = SseDecoder::new(SseLimits { event_bytes: 8 });
        let mut none = |event| panic!("unexpected {event:?}");
        let too_large = Err(SseError::TooLarge { limit: 8 });
        assert_eq!(decoder.push(b"data: 12345", &mut none), too_large);
        assert_eq!(decoder.push(b"\n\ndata:1\n\n", &mut none), too_large);
        assert_eq!(decoder.push(b"", &mut none), too_large);
    }

    #[test]
    fn a_large_event_in_small_chunks_takes_linear_time() {
        let data = "0123456789abcdef".repeat(900 * 1024 / 16);
        let one_line = format!("data: {data}\n\n");
        let many_lines = format!("{}\n", "data: 0123456789\n".repeat(900 * 1024 / 16));

        let started = Instant::now();
        for stream in [&one_line, &many_lines] {
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(64).collect();
            let (events, outcome, ..) = decode(ROOMY, &chunks);
            assert_eq!((events.len(), outcome), (1, Ok(())));
        }
        // Milliseconds when linear, tens of seconds when every chunk looks at all earlier ones.
        assert!(started.elapsed() < Duration::from_secs(2));
    }
}
