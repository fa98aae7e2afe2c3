//! The decoder of event streams, against the standard read naively, and however the stream is cut.

use workers_agents::protocol::sse::{SseDecoder, SseError, SseEvent, SseLimits};

use crate::cuts::Numbers;

/// No stream of a test reaches it.
const ROOMY: usize = 1 << 20;

/// A stream's events, what ended it, and what it leaves behind.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub events: Vec<SseEvent>,
    pub outcome: Result<(), SseError>,
    pub last_event_id: Option<String>,
    pub retry: Option<u64>,
}

pub fn check(stream: &[u8]) {
    let mut numbers = Numbers::of(stream);
    let limit = numbers.up_to(stream.len() + 8);
    let longest = 1 + numbers.up_to(16);
    let cut = numbers.cut(stream, longest);
    agrees(stream, &cut, limit);
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    agrees(stream, &bytes, limit);
    holds_little(&cut, limit);
    // The least that lets every line pass.
    let lines = stream.split(|byte| matches!(byte, b'\r' | b'\n'));
    let limit = lines.map(<[u8]>::len).max().unwrap_or_default();
    holds_little(&cut, limit);
    holds_little(&[stream], limit);
}

/// The stream says what the standard says, and `chunks`, which are its parts, say the same.
pub fn agrees(stream: &[u8], chunks: &[&[u8]], limit: usize) {
    let by_the_standard = read_naively(stream);
    assert_eq!(decode(&[stream], ROOMY), by_the_standard);
    assert_eq!(decode(chunks, ROOMY), by_the_standard, "{chunks:?}");

    let limited = decode(&[stream], limit);
    assert_eq!(decode(chunks, limit), limited, "{chunks:?} within {limit}");
    assert!(by_the_standard.events.starts_with(&limited.events));
    if limited.outcome.is_ok() {
        assert_eq!(limited, by_the_standard, "within {limit}");
    }
}

fn decode(chunks: &[&[u8]], event_bytes: usize) -> Seen {
    let mut decoder = SseDecoder::new(SseLimits { event_bytes });
    let mut events = Vec::new();
    let mut outcome = Ok(());
    for chunk in chunks {
        outcome = decoder.push(chunk, &mut |event| events.push(event));
    }
    Seen {
        events,
        outcome,
        last_event_id: decoder.last_event_id().map(str::to_owned),
        retry: decoder.retry(),
    }
}

/// WHATWG HTML §9.2.5 and §9.2.6, a sentence at a time and without regard for memory.
fn read_naively(stream: &[u8]) -> Seen {
    let text = String::from_utf8_lossy(stream);
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut seen = Seen {
        events: Vec::new(),
        outcome: Ok(()),
        last_event_id: None,
        retry: None,
    };
    let (mut data, mut event) = (None::<Vec<String>>, SseEvent::default());
    for line in text.split_inclusive('\n') {
        // A line that has not ended is not processed.
        let Some(line) = line.strip_suffix('\n') else {
            break;
        };
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            _ if line.is_empty() => {
                let mut event = std::mem::take(&mut event);
                event.data = data.take().map(|lines| lines.join("\n"));
                event.name = event
                    .name
                    .filter(|name| !["", "message"].contains(&&**name));
                if let Some(id) = &event.id {
                    seen.last_event_id = Some(id.clone()).filter(|id| !id.is_empty());
                }
                let silent = SseEvent {
                    name: event.name.clone(),
                    ..SseEvent::default()
                };
                if event != silent {
                    seen.events.push(event);
                }
            }
            "data" => data.get_or_insert_default().push(value),
            "event" => event.name = Some(value),
            "id" if !value.contains('\0') => event.id = Some(value),
            "retry" if value.chars().all(|digit| digit.is_ascii_digit()) => {
                if let Ok(delay) = value.parse() {
                    event.retry = Some(delay);
                    seen.retry = Some(delay);
                }
            }
            _ => {}
        }
    }
    seen
}

/// What the decoder holds follows from its limit, whatever it is sent. A buffer may be twice as large as its
/// text; the last event's id may come on top of a whole event; and while a line is read, it is there once more.
fn holds_little(chunks: &[&[u8]], event_bytes: usize) {
    const SMALL: usize = 256;
    let mut decoder = SseDecoder::new(SseLimits { event_bytes });
    let mut held = 0;
    for chunk in chunks {
        let mut outcome = Ok(());
        let pushed = allocation_counter::measure(|| outcome = decoder.push(chunk, &mut drop));
        let peak = held + usize::try_from(pushed.bytes_max).expect("fits");
        assert!(
            peak <= 8 * event_bytes + SMALL,
            "{peak} bytes at once within {event_bytes}"
        );
        held = held.saturating_add_signed(isize::try_from(pushed.bytes_current).expect("fits"));
        if outcome.is_err() {
            return;
        }
        assert!(
            held <= 4 * event_bytes + SMALL,
            "{held} bytes are held within {event_bytes}"
        );
    }
}
