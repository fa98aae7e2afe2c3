//! Turning answers that are of no use into errors that say what came.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::select;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};

use super::error::{HttpFailure, TransportError, UnusableAnswer, UnusableReason};
use crate::ports::{Body, Clock, HttpResponse};
use crate::protocol::jsonrpc::decode;
use crate::protocol::{Message, RpcError};

/// How much of a body that may hold a JSON-RPC error is read.
const MAX_JSON: usize = 1 << 20;
/// How much of any other body is read.
const MAX_TEXT: usize = 4 << 10;
/// How long a body is read: the status is known already, so a silent body must not hide it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest challenge that is kept, in bytes.
const MAX_CHALLENGE: usize = 4 << 10;
/// Longest excerpt, in characters.
const MAX_EXCERPT: usize = 200;
/// Longest media type that is kept, in characters.
const MAX_CONTENT_TYPE: usize = 100;

/// The error for a status other than 2xx.
pub(super) async fn failure(clock: &dyn Clock, response: HttpResponse) -> TransportError {
    let HttpResponse {
        status,
        headers,
        body,
    } = response;
    let content_type = media_type(&headers);
    let text = beginning(clock, body, &content_type).await;
    let rpc = rpc_error(&text, &content_type);
    let excerpt = if rpc.is_none() {
        shown_text(&text, &content_type)
    } else {
        None
    };
    // Retry-After as a date is left to the caller's own delay.
    let seconds = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok());
    TransportError::Status(Box::new(HttpFailure {
        status,
        content_type: shown_type(&content_type),
        rpc,
        retry_after: seconds.map(Duration::from_secs),
        challenge: challenge(&headers),
        excerpt,
    }))
}

/// The error for a status of 2xx whose body has an unexpected type.
pub(super) async fn unexpected_type(clock: &dyn Clock, response: HttpResponse) -> TransportError {
    let content_type = media_type(&response.headers);
    let text = beginning(clock, response.body, &content_type).await;
    let reason = if text.trim_ascii().is_empty() {
        UnusableReason::Empty
    } else {
        UnusableReason::ContentType
    };
    unusable(response.status, &content_type, &text, reason)
}

/// The error for a status of 2xx whose body has been read.
pub(super) fn unusable(
    status: u16,
    content_type: &str,
    text: &[u8],
    reason: UnusableReason,
) -> TransportError {
    TransportError::Unusable(Box::new(UnusableAnswer {
        status,
        content_type: shown_type(content_type),
        excerpt: shown_text(text, content_type),
        reason,
    }))
}

/// The media type without parameters, in lower case; empty when there is none.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(CONTENT_TYPE)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let value = value.as_deref().unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

async fn beginning(clock: &dyn Clock, mut body: Body, content_type: &str) -> Vec<u8> {
    let mut text = Vec::new();
    if !is_textual(content_type) {
        return text;
    }
    let reading = async {
        while let Some(Ok(chunk)) = body.next().await {
            text.extend_from_slice(&chunk);
            let limit = if looks_like_json(&text, content_type) {
                MAX_JSON
            } else {
                MAX_TEXT
            };
            if text.len() > limit {
                break;
            }
        }
    };
    select(pin!(reading), clock.sleep(PATIENCE)).await;
    text
}

/// Servers send errors with whatever type their framework puts on texts.
fn looks_like_json(text: &[u8], content_type: &str) -> bool {
    content_type.ends_with("json") || text.trim_ascii_start().starts_with(b"{")
}

/// Without a type it may be text.
fn is_textual(content_type: &str) -> bool {
    const ENDINGS: [&str; 4] = ["json", "xml", "javascript", "x-www-form-urlencoded"];
    content_type.is_empty()
        || content_type.starts_with("text/")
        || ENDINGS.iter().any(|ending| content_type.ends_with(ending))
}

fn rpc_error(text: &[u8], content_type: &str) -> Option<RpcError> {
    if text.len() > MAX_JSON || !looks_like_json(text, content_type) {
        return None;
    }
    let messages = decode(text).unwrap_or_default();
    messages.into_iter().find_map(|message| match message {
        Message::Response { outcome, .. } => outcome.err(),
        Message::Request { .. } | Message::Notification { .. } => None,
    })
}

fn challenge(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    let values: Vec<_> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    let mut joined = values.join(", ");
    joined.truncate(joined.floor_char_boundary(MAX_CHALLENGE));
    (!joined.is_empty()).then_some(joined)
}

fn shown_type(content_type: &str) -> Option<String> {
    excerpt(content_type.as_bytes(), MAX_CONTENT_TYPE)
}

fn shown_text(text: &[u8], content_type: &str) -> Option<String> {
    let is_binary = content_type.is_empty() && text.contains(&0);
    excerpt((!is_binary).then_some(text)?, MAX_EXCERPT)
}

/// The beginning of a text on one line, escaped for HTML, at most `max` characters as shown.
/// `None` when there is nothing to show.
fn excerpt(text: &[u8], max: usize) -> Option<String> {
    const CUT: &str = "...";
    let text = String::from_utf8_lossy(text.get(..MAX_TEXT).unwrap_or(text));
    let words: Vec<_> = text
        .split(is_blank)
        .filter(|word| !word.is_empty())
        .collect();
    let line = words.join(" ");
    let width = |letter| escape(letter).map_or(1, str::len);
    let is_cut = line.chars().map(width).sum::<usize>() > max;
    let mut room = if is_cut { max - CUT.len() } else { max };
    let mut shown = String::new();
    for letter in line.chars() {
        let Some(left) = room.checked_sub(width(letter)) else {
            break;
        };
        room = left;
        match escape(letter) {
            Some(escaped) => shown.push_str(escaped),
            None => shown.push(letter),
        }
    }
    if is_cut {
        shown.push_str(CUT);
    }
    (!shown.is_empty()).then_some(shown)
}

/// What separates words: blanks, controls, and the marks that reorder the text around them.
fn is_blank(letter: char) -> bool {
    letter.is_whitespace()
        || letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(letter: char) -> Option<&'static str> {
    Some(match letter {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#39;",
        _ => return None,
    })
}
