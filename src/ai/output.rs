//! Results of tools, in the form that models take.

use serde_json::{Value, json};

use super::text::clip_to;
use crate::protocol::CallToolResult;

/// Limits of what models are given of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputLimits {
    /// The longest text in all, in characters. Default: 50 000.
    pub max_chars: usize,
    /// The most images. Default: 8.
    pub max_images: usize,
    /// The largest image, in bytes of base64. Default: 5 MiB, which Anthropic takes.
    pub max_image_bytes: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            max_chars: 50_000,
            max_images: 8,
            max_image_bytes: 5 << 20,
        }
    }
}

/// What a tool gave back, cut to what a model takes in: texts and images. What is neither, and what
/// was cut, is said in words.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    parts: Vec<Part>,
    is_error: bool,
}

#[derive(Clone, PartialEq)]
enum Part {
    Text(String),
    Image { media_type: String, data: String },
}

/// Bytes can be anything, so only their number is shown.
impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, bytes) = match self {
            Self::Text(text) => ("Text", text.len()),
            Self::Image { data, .. } => ("Image", data.len()),
        };
        f.debug_tuple(kind).field(&bytes).finish()
    }
}

/// Types of images that providers take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The longest URI, type or name in a note, in characters.
const MAX_NOTED: usize = 500;
/// The most blocks that are looked at.
const MAX_BLOCKS: usize = 1_000;

impl ToolOutput {
    /// Takes a result in.
    pub fn of(result: &CallToolResult, limits: &OutputLimits) -> Self {
        let mut taken = Taken {
            limits,
            parts: Vec::new(),
            chars_left: limits.max_chars,
            left_out: 0,
            images: 0,
        };
        let content = result.content();
        for block in content.iter().take(MAX_BLOCKS) {
            taken.block(block);
        }
        if content.len() > MAX_BLOCKS {
            let more = content.len() - MAX_BLOCKS;
            taken.note(&format!("{more} more blocks are left out"));
        }
        if let Some(structured) = result.structured_content() {
            taken.structured(structured.get());
        }
        taken.finish(result.is_error())
    }

    /// A failure, or something else that is said in place of a result.
    pub fn error(text: &str) -> Self {
        Self {
            parts: vec![Part::Text(text.to_owned())],
            is_error: true,
        }
    }

    /// Whether the tool failed.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// All of it as text, with a note for each image. A failure says so.
    pub fn to_text(&self) -> String {
        let texts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Image { media_type, data } => {
                let bytes = data.len() / 4 * 3;
                format!("[an image, {media_type}, about {bytes} bytes, which cannot be shown here]")
            }
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        match (self.is_error, text.is_empty()) {
            (true, true) => "Error: the tool failed and did not say why".into(),
            (true, false) => format!("Error: {text}"),
            (false, true) => "(no output)".into(),
            (false, false) => text,
        }
    }

    /// Roughly how large it is in a request, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Image { data, .. } => data.len(),
        };
        self.parts.iter().map(bytes).sum()
    }

    /// A message for OpenAI's chat completions. Tools answer in text only there.
    pub fn to_openai_chat(&self, call_id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": call_id, "content": self.to_text()})
    }

    /// An input item for OpenAI's responses.
    pub fn to_openai_responses(&self, call_id: &str) -> Value {
        if !self.has_images() {
            let output = self.to_text();
            return json!({"type": "function_call_output", "call_id": call_id, "output": output});
        }
        let mut output: Vec<Value> = Vec::new();
        if self.is_error {
            output.push(json!({"type": "input_text", "text": "Error:"}));
        }
        output.extend(self.parts.iter().map(|part| match part {
            Part::Text(text) => json!({"type": "input_text", "text": text}),
            Part::Image { media_type, data } => {
                let url = format!("data:{media_type};base64,{data}");
                json!({"type": "input_image", "image_url": url})
            }
        }));
        json!({"type": "function_call_output", "call_id": call_id, "output": output})
    }

    /// A content block for Anthropic's messages. All results of one turn belong into one message of
    /// the user.
    pub fn to_anthropic(&self, tool_use_id: &str) -> Value {
        // Empty texts are refused.
        let parts = self.parts.iter().filter(|part| match part {
            Part::Text(text) => !text.trim().is_empty(),
            Part::Image { .. } => true,
        });
        let content: Vec<Value> = parts
            .map(|part| match part {
                Part::Text(text) => json!({"type": "text", "text": text}),
                Part::Image { media_type, data } => {
                    let source = json!({"type": "base64", "media_type": media_type, "data": data});
                    json!({"type": "image", "source": source})
                }
            })
            .collect();
        json!({
            "type": "tool_result",
            "tool_use_id": tool_use_id,
            "content": content,
            "is_error": self.is_error,
        })
    }

    /// A message for models of Workers AI. They take text only.
    pub fn to_workers_ai(&self, call_id: &str, name: &str) -> Value {
        json!({"role": "tool", "tool_call_id": call_id, "name": name, "content": self.to_text()})
    }

    fn has_images(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, Part::Image { .. }))
    }
}

struct Taken<'a> {
    limits: &'a OutputLimits,
    parts: Vec<Part>,
    chars_left: usize,
    /// How many characters did not fit.
    left_out: usize,
    images: usize,
}

impl Taken<'_> {
    fn block(&mut self, block: &Value) {
        let text = |name: &str| block.get(name).and_then(Value::as_str);
        match text("type") {
            Some("text") => self.text(text("text").unwrap_or_default()),
            Some("image") => self.image(
                text("mimeType").unwrap_or_default(),
                text("data").unwrap_or_default(),
            ),
            Some("audio") => {
                let kind = noted(text("mimeType").unwrap_or("of unknown type"));
                self.note(&format!("audio, {kind}, which cannot be played here"));
            }
            Some("resource_link") => {
                let uri = noted(text("uri").unwrap_or_default());
                let name = noted(text("name").unwrap_or_default());
                self.note(&format!("a link to the resource {uri} ({name})"));
            }
            Some("resource") => self.resource(block.get("resource").unwrap_or(&Value::Null)),
            kind => {
                let kind = noted(kind.unwrap_or("unknown"));
                self.note(&format!(
                    "content of the type {kind}, which cannot be shown here"
                ));
            }
        }
    }

    fn resource(&mut self, resource: &Value) {
        let text = |name: &str| resource.get(name).and_then(Value::as_str);
        let uri = noted(text("uri").unwrap_or_default());
        if let Some(contents) = text("text") {
            self.note(&format!("the resource {uri}:"));
            self.text(contents);
            return;
        }
        let kind = text("mimeType").unwrap_or("of unknown type");
        match text("blob") {
            Some(data) if IMAGES.contains(&kind) => {
                self.note(&format!("the resource {uri}:"));
                self.image(kind, data);
            }
            _ => {
                let kind = noted(kind);
                self.note(&format!(
                    "the resource {uri}, {kind}, which cannot be shown here"
                ));
            }
        }
    }

    fn image(&mut self, media_type: &str, data: &str) {
        let is_base64 =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let refusal = if !IMAGES.contains(&media_type) {
            Some("of a type that cannot be shown here")
        } else if data.is_empty() || !data.bytes().all(is_base64) {
            Some("which cannot be read")
        } else if data.len() > self.limits.max_image_bytes {
            Some("too large to be shown here")
        } else if self.images == self.limits.max_images {
            Some("left out: there are too many")
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let kind = noted(media_type);
            self.note(&format!("an image, {kind}, {refusal}"));
            return;
        }
        self.images += 1;
        self.parts.push(Part::Image {
            media_type: media_type.to_owned(),
            data: data.to_owned(),
        });
    }

    /// Servers should give structured content as text as well: then it says nothing new.
    fn structured(&mut self, json: &str) {
        let value: Option<Value> = serde_json::from_str(json).ok();
        let is_said = self.left_out > 0
            || self.parts.iter().any(|part| match part {
                Part::Text(text) if text.trim_start().starts_with(['{', '[']) => {
                    serde_json::from_str(text).ok() == value
                }
                Part::Text(text) => text.trim() == json,
                Part::Image { .. } => false,
            });
        if !is_said {
            self.text(json);
        }
    }

    fn note(&mut self, text: &str) {
        self.text(&format!("[{text}]"));
    }

    fn text(&mut self, text: &str) {
        let end = text.char_indices().nth(self.chars_left);
        let kept = end.map_or(text, |(end, _)| text.get(..end).unwrap_or_default());
        let chars = kept.chars().count();
        self.chars_left -= chars;
        if kept.len() < text.len() {
            self.left_out += text.chars().count() - chars;
        }
        if !kept.is_empty() || text.is_empty() {
            self.parts.push(Part::Text(kept.to_owned()));
        }
    }

    fn finish(mut self, is_error: bool) -> ToolOutput {
        if self.left_out > 0 {
            let all = self.limits.max_chars - self.chars_left + self.left_out;
            self.parts.push(Part::Text(format!(
                "[cut here: {} of {all} characters are left out]",
                self.left_out
            )));
        }
        ToolOutput {
            parts: self.parts,
            is_error,
        }
    }
}

/// On one line, and not too long.
fn noted(text: &str) -> String {
    clip_to(&text.replace(char::is_control, " "), MAX_NOTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn output(json: &Value, limits: &OutputLimits) -> ToolOutput {
        let json = RawValue::from_string(json.to_string()).unwrap();
        ToolOutput::of(&CallToolResult::new(json), limits)
    }

    fn plain(json: &Value) -> ToolOutput {
        output(json, &OutputLimits::default())
    }

    #[test]
    fn tl_23_every_kind_of_content_is_shown_or_named() {
        let out = plain(&json!({"content": [
            {"type": "text", "text": "hello"},
            {"type": "audio", "mimeType": "audio/wav", "data": "AA=="},
            {"type": "resource_link", "uri": "x://1", "name": "n"},
            {"type": "resource", "resource": {"uri": "x://2", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "x://3", "blob": "AA==", "mimeType": "application/zip"}},
            {"type": "hologram", "data": "?"},
            3,
        ]}));
        assert_eq!(
            out.to_text(),
            "hello\n[audio, audio/wav, which cannot be played here]\n\
             [a link to the resource x://1 (n)]\n[the resource x://2:]\ninside\n\
             [the resource x://3, application/zip, which cannot be shown here]\n\
             [content of the type hologram, which cannot be shown here]\n\
             [content of the type unknown, which cannot be shown here]"
        );
    }

    #[test]
    fn images_go_where_they_are_taken_and_are_named_elsewhere() {
        let out = plain(&json!({"content": [
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "image", "mimeType": "image/tiff", "data": "aGVsbG8="},
            {"type": "image", "mimeType": "image/png", "data": "not base64"},
        ]}));
        let tiff = "[an image, image/tiff, of a type that cannot be shown here]";
        let bad = "[an image, image/png, which cannot be read]";
        let anthropic = out.to_anthropic("t1");
        assert_eq!(
            anthropic["content"],
            json!([
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}},
                {"type": "text", "text": tiff},
                {"type": "text", "text": bad},
            ])
        );
        let responses = out.to_openai_responses("c1");
        assert_eq!(
            responses["output"][0],
            json!({"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8="})
        );
        let chat = out.to_openai_chat("c1");
        let text = format!(
            "[an image, image/png, about 6 bytes, which cannot be shown here]\n{tiff}\n{bad}"
        );
        assert_eq!(
            chat,
            json!({"role": "tool", "tool_call_id": "c1", "content": text})
        );
        assert_eq!(out.to_workers_ai("c1", "n")["content"], text);
    }

    #[test]
    fn failures_say_so_to_everybody() {
        let out = plain(&json!({"content": [{"type": "text", "text": "no"}], "isError": true}));
        assert_eq!(out.to_openai_chat("c")["content"], "Error: no");
        assert_eq!(out.to_openai_responses("c")["output"], "Error: no");
        assert_eq!(out.to_workers_ai("c", "n")["content"], "Error: no");
        let anthropic = out.to_anthropic("c");
        assert_eq!(anthropic["is_error"], true);
        assert_eq!(anthropic["content"][0]["text"], "no");
        let silent = plain(&json!({"content": [], "isError": true}));
        assert_eq!(
            silent.to_text(),
            "Error: the tool failed and did not say why"
        );
        assert_eq!(silent.to_anthropic("c")["content"], json!([]));
    }

    #[test]
    fn structured_content_is_told_once() {
        for (content, text) in [
            (json!([]), r#"{"b":1,"a":2}"#),
            (
                json!([{"type": "text", "text": r#"{"a": 2, "b": 1}"#}]),
                r#"{"a": 2, "b": 1}"#,
            ),
            (
                json!([{"type": "text", "text": "two"}]),
                "two\n{\"b\":1,\"a\":2}",
            ),
        ] {
            let json = format!(r#"{{"content":{content},"structuredContent":{{"b":1,"a":2}}}}"#);
            let result = CallToolResult::new(RawValue::from_string(json).unwrap());
            assert_eq!(
                ToolOutput::of(&result, &OutputLimits::default()).to_text(),
                text
            );
        }
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let limits = OutputLimits {
            max_chars: 5,
            max_images: 1,
            max_image_bytes: 8,
        };
        let long = json!({"content": [
            {"type": "text", "text": "éééé"},
            {"type": "text", "text": "abc"},
            {"type": "text", "text": "def"},
        ]});
        let out = output(&long, &limits);
        assert_eq!(
            out.to_text(),
            "éééé\na\n[cut here: 5 of 10 characters are left out]"
        );
        let image = json!({"type": "image", "mimeType": "image/png", "data": "aGVsbG8="});
        let large = json!({"type": "image", "mimeType": "image/png", "data": "aGVsbG8haGVs"});
        let limits = OutputLimits {
            max_chars: 500,
            ..limits
        };
        let out = output(&json!({"content": [large, image, image]}), &limits);
        assert_eq!(
            out.to_anthropic("t")["content"][0]["text"],
            "[an image, image/png, too large to be shown here]"
        );
        assert_eq!(
            out.to_anthropic("t")["content"][2]["text"],
            "[an image, image/png, left out: there are too many]"
        );
    }
}
