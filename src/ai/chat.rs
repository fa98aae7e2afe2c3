//! Chat completions on the wire: the format of OpenAI, which most others speak, and the older one
//! of Workers AI. Pure.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::error::ModelError;
use super::model::{ChatMessage, FinishReason, ModelAnswer, ModelRequest, ToolRequest, Usage};
use super::text::shown;
use crate::protocol::sse::{SseDecoder, SseLimits};

/// The longest answer, in bytes.
pub(super) const MAX_ANSWER: usize = 4 << 20;
/// The most calls in one answer.
const MAX_CALLS: usize = 128;
/// The longest message of an error, in characters.
const MAX_MESSAGE: usize = 500;

/// Who the body is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenAi,
    WorkersAi,
}

/// The body of a request. `parameters` are the caller's own; they replace nothing.
pub(super) fn body(
    request: &ModelRequest<'_>,
    format: Format,
    tools: &RawValue,
    parameters: &Map<String, Value>,
    model: Option<&str>,
) -> String {
    let mut body = parameters.clone();
    body.remove("tools");
    body.insert("messages".into(), messages(request, format).into());
    if let Some(model) = model {
        body.insert("model".into(), model.into());
    }
    if let Some(max) = request.max_tokens {
        body.entry("max_tokens").or_insert_with(|| max.into());
    }
    body.remove("stream");
    if request.on_text.is_some() {
        body.insert("stream".into(), true.into());
        if format == Format::OpenAi {
            body.entry("stream_options")
                .or_insert_with(|| json!({"include_usage": true}));
        }
    }
    let mut text = Value::Object(body).to_string();
    // A list of no tools is refused by some.
    if tools.get() != "[]" {
        text.pop();
        text.push_str(",\"tools\":");
        text.push_str(tools.get());
        text.push('}');
    }
    text
}

fn messages(request: &ModelRequest<'_>, format: Format) -> Vec<Value> {
    let system = request
        .system
        .map(|text| json!({"role": "system", "content": text}));
    let rest = request.messages.iter().map(|message| match message {
        ChatMessage::User(text) => json!({"role": "user", "content": text}),
        ChatMessage::Assistant { text, calls } if calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        ChatMessage::Assistant { text, calls } => {
            let calls: Vec<Value> = calls
                .iter()
                .map(|call| {
                    let function = json!({"name": call.name, "arguments": call.arguments});
                    json!({"id": call.id, "type": "function", "function": function})
                })
                .collect();
            let content = match format {
                Format::OpenAi if text.is_empty() => Value::Null,
                _ => text.as_str().into(),
            };
            json!({"role": "assistant", "content": content, "tool_calls": calls})
        }
        ChatMessage::Tool {
            call_id,
            name,
            output,
        } => match format {
            Format::OpenAi => output.to_openai_chat(call_id),
            Format::WorkersAi => output.to_workers_ai(call_id, name),
        },
    });
    system.into_iter().chain(rest).collect()
}

/// Reads an answer that came in one piece.
pub(super) fn read(text: &str) -> Result<ModelAnswer, ModelError> {
    let value: Value =
        serde_json::from_str(text).map_err(|_| ModelError::Unreadable("it is no JSON"))?;
    let mut answer = Answer::default();
    answer.take(&value, &|_| {})?;
    if !answer.is_known {
        return Err(ModelError::Unreadable("it has neither text nor calls"));
    }
    Ok(answer.finish())
}

/// What a failed request says of itself. `secret` is taken out of it.
pub(super) fn complaint(text: &str, secret: Option<&str>) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let said = ["/error/message", "/errors/0/message", "/message", "/error"]
        .iter()
        .find_map(|path| value.pointer(path)?.as_str());
    let said = said.unwrap_or("no reason is given");
    let said = match secret {
        Some(secret) if !secret.is_empty() => said.replace(secret, "..."),
        _ => said.to_owned(),
    };
    shown(&said.replace(['\n', '\t'], " "), MAX_MESSAGE)
}

/// An answer that comes in pieces, as an event stream.
pub(super) struct Streamed {
    decoder: SseDecoder,
    answer: Answer,
    bytes: usize,
    is_done: bool,
}

impl Streamed {
    pub(super) fn new() -> Self {
        let limits = SseLimits {
            event_bytes: MAX_ANSWER,
        };
        Self {
            decoder: SseDecoder::new(limits),
            answer: Answer::default(),
            bytes: 0,
            is_done: false,
        }
    }

    /// Takes the next bytes. Says whether the answer is complete.
    pub(super) fn push(
        &mut self,
        chunk: &[u8],
        on_text: &dyn Fn(&str),
    ) -> Result<bool, ModelError> {
        self.bytes = self.bytes.saturating_add(chunk.len());
        // Pieces carry much around little text.
        if self.bytes > 8 * MAX_ANSWER {
            return Err(ModelError::TooLarge(8 * MAX_ANSWER));
        }
        let mut events = Vec::new();
        self.decoder
            .push(chunk, &mut |event| events.extend(event.data))
            .map_err(|_| ModelError::TooLarge(MAX_ANSWER))?;
        for data in events {
            if self.is_done || data.trim() == "[DONE]" {
                self.is_done = true;
                continue;
            }
            let value: Value = serde_json::from_str(&data)
                .map_err(|_| ModelError::Unreadable("a piece is no JSON"))?;
            self.answer.take(&value, on_text)?;
        }
        Ok(self.is_done)
    }

    pub(super) fn finish(self) -> Result<ModelAnswer, ModelError> {
        // Without its end, half an answer would pass for a whole one.
        if !self.is_done && !self.answer.is_finished {
            return Err(ModelError::Unreadable("it breaks off"));
        }
        Ok(self.answer.finish())
    }
}

#[derive(Default)]
struct Answer {
    said: ModelAnswer,
    /// The numbers of the calls that are being written.
    numbers: Vec<u64>,
    bytes: usize,
    is_known: bool,
    is_finished: bool,
}

impl Answer {
    fn take(&mut self, value: &Value, on_text: &dyn Fn(&str)) -> Result<(), ModelError> {
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ModelError::Failed(complaint(&value.to_string(), None)));
        }
        // The REST API of Workers AI wraps answers.
        let value = value
            .get("result")
            .filter(|it| it.is_object())
            .unwrap_or(value);
        if let Some(usage) = value.get("usage").filter(|usage| usage.is_object()) {
            let count = |name| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
            self.said.usage = Usage {
                input_tokens: count("prompt_tokens"),
                output_tokens: count("completion_tokens"),
            };
        }
        if let Some(choice) = value.pointer("/choices/0") {
            self.is_known = true;
            let part = choice.get("delta").or_else(|| choice.get("message"));
            let part = part.unwrap_or(&Value::Null);
            self.content(part.get("content"), on_text)?;
            self.calls(part.get("tool_calls"), choice.get("delta").is_some())?;
            if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
                self.is_finished = true;
                self.said.finish = match reason {
                    "length" => FinishReason::Length,
                    "content_filter" => FinishReason::ContentFilter,
                    "tool_calls" | "function_call" => FinishReason::ToolCalls,
                    _ => FinishReason::Stop,
                };
            }
            return Ok(());
        }
        // The older form, whole or in pieces.
        if value.get("response").is_some() || value.get("tool_calls").is_some() {
            self.is_known = true;
            self.content(value.get("response"), on_text)?;
            self.calls(value.get("tool_calls"), false)?;
        }
        Ok(())
    }

    fn content(
        &mut self,
        content: Option<&Value>,
        on_text: &dyn Fn(&str),
    ) -> Result<(), ModelError> {
        let text = match content {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => parts
                .iter()
                .filter_map(|part| part.get("text")?.as_str())
                .collect(),
            // A number or an object that the model wrote as its answer.
            Some(value) if !value.is_null() => value.to_string(),
            _ => return Ok(()),
        };
        self.count(text.len())?;
        if !text.is_empty() {
            self.said.text.push_str(&text);
            on_text(&text);
        }
        Ok(())
    }

    fn calls(&mut self, calls: Option<&Value>, in_pieces: bool) -> Result<(), ModelError> {
        for call in calls.and_then(Value::as_array).into_iter().flatten() {
            let of = call.get("function").unwrap_or(call);
            let text = |value: &Value, name: &str| {
                let text = value.get(name).and_then(Value::as_str);
                text.unwrap_or_default().to_owned()
            };
            let (id, name) = (text(call, "id"), text(of, "name"));
            let arguments = match of.get("arguments") {
                Some(Value::String(text)) => text.clone(),
                None | Some(Value::Null) => String::new(),
                Some(value) => value.to_string(),
            };
            self.count(id.len() + name.len() + arguments.len())?;
            let number = call.get("index").and_then(Value::as_u64);
            let known = number.filter(|_| in_pieces).and_then(|number| {
                let at = self.numbers.iter().position(|other| *other == number)?;
                self.said.calls.get_mut(at)
            });
            if let Some(known) = known {
                // Some repeat id and name with every piece.
                if known.id.is_empty() {
                    known.id = id;
                }
                if known.name.is_empty() {
                    known.name = name;
                }
                known.arguments.push_str(&arguments);
                continue;
            }
            if self.said.calls.len() == MAX_CALLS {
                return Err(ModelError::Unreadable("it has too many calls"));
            }
            let next = self.numbers.len() as u64;
            // What has no number is not continued.
            self.numbers.push(number.unwrap_or(u64::MAX - next));
            self.said.calls.push(ToolRequest {
                id,
                name,
                arguments,
            });
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_ANSWER {
            return Err(ModelError::TooLarge(MAX_ANSWER));
        }
        Ok(())
    }

    fn finish(mut self) -> ModelAnswer {
        if !self.said.calls.is_empty() && self.said.finish == FinishReason::Stop {
            self.said.finish = FinishReason::ToolCalls;
        }
        self.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn streamed(text: &str, cut: usize) -> Result<(ModelAnswer, Vec<String>), ModelError> {
        let told = RefCell::new(Vec::new());
        let mut stream = Streamed::new();
        for chunk in text.as_bytes().chunks(cut) {
            stream.push(chunk, &|text| told.borrow_mut().push(text.to_owned()))?;
        }
        Ok((stream.finish()?, told.into_inner()))
    }

    #[test]
    fn an_answer_in_pieces_is_put_together_however_it_is_cut() {
        let text = concat!(
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"Hé\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"llo\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"x\",\"arguments\":\"\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"y\",\"arguments\":\"{\"}},{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n",
            "data: [DONE]\n\n",
        );
        for cut in [1, 7, 10_000] {
            let (answer, told) = streamed(text, cut).unwrap();
            assert_eq!(answer.text, "Héllo");
            assert_eq!(told, ["Hé", "llo"]);
            let calls: Vec<_> = answer
                .calls
                .iter()
                .map(|call| (&*call.id, &*call.name, &*call.arguments))
                .collect();
            assert_eq!(calls, [("a", "x", "{}"), ("b", "y", "{}")]);
            assert_eq!(answer.finish, FinishReason::ToolCalls);
            assert_eq!(answer.usage.output_tokens, 4);
        }
    }

    #[test]
    fn half_an_answer_is_no_answer() {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
        assert_eq!(
            streamed(text, 100).unwrap_err(),
            ModelError::Unreadable("it breaks off")
        );
        let failed = "data: {\"error\":{\"message\":\"over\\nloaded\"}}\n\n";
        assert_eq!(
            streamed(failed, 100).unwrap_err(),
            ModelError::Failed("over loaded".into())
        );
        assert!(streamed("data: {\n\n", 100).is_err());
    }

    #[test]
    fn workers_ai_is_read_in_both_of_its_forms() {
        let old = read(r#"{"response":null,"tool_calls":[{"name":"x","arguments":{"a":1}}],"usage":{"prompt_tokens":1}}"#).unwrap();
        assert_eq!(old.calls[0].arguments, r#"{"a":1}"#);
        assert_eq!(old.finish, FinishReason::ToolCalls);
        let new = read(
            r#"{"choices":[{"message":{"content":"hi","tool_calls":[]},"finish_reason":"stop"}]}"#,
        )
        .unwrap();
        assert_eq!((new.text.as_str(), new.calls.len()), ("hi", 0));
        assert_eq!(
            read(r#"{"result":{"response":"hi"},"success":true}"#)
                .unwrap()
                .text,
            "hi"
        );
        let pieces = "data: {\"response\":\"a\"}\n\ndata: {\"response\":\"b\",\"tool_calls\":[{\"name\":\"x\",\"arguments\":{}}]}\n\ndata: [DONE]\n\n";
        let (answer, told) = streamed(pieces, 9).unwrap();
        assert_eq!((answer.text.as_str(), answer.calls.len()), ("ab", 1));
        assert_eq!(told.len(), 2);
        for odd in ["", "[]", "{}", "<html>"] {
            assert!(read(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_key_that_is_repeated_in_an_error_is_taken_out() {
        let said = complaint(
            r#"{"error":{"message":"Incorrect API key: sk-secret"}}"#,
            Some("sk-secret"),
        );
        assert_eq!(said, "Incorrect API key: ...");
        assert_eq!(complaint("<html>", None), "no reason is given");
    }
}
