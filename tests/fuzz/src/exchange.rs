//! The transport, with a server that answers every request alike: the status, header lines, an empty line, and
//! the body.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::LocalBoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use workers_agents::ports::{Clock, Http, HttpError, HttpRequest, HttpResponse, Timestamp};
use workers_agents::protocol::RequestId;
use workers_agents::transport::{
    Outgoing, SessionHeader, StreamableHttp, Transport as _, TransportError,
};
use workers_agents::url_guard::GuardedUrl;

use crate::cuts::Numbers;
use crate::jsonrpc::describe;

const LIMIT: usize = 1 << 20;

pub fn check(input: &[u8]) {
    let Some(answer) = Answer::read(input) else {
        return;
    };
    let whole = exchange(&answer, vec![answer.body.clone()]);
    let mut numbers = Numbers::of(input);
    let longest = 1 + numbers.up_to(64);
    let cut = numbers.cut(&answer.body, longest);
    let cut = exchange(&answer, cut.into_iter().map(<[u8]>::to_vec).collect());
    assert_eq!(cut, whole);
}

#[derive(Clone)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn read(input: &[u8]) -> Option<Self> {
        let mut rest = input;
        let mut line = || {
            let end = rest.iter().position(|&byte| byte == b'\n')?;
            let line = &rest[..end];
            rest = &rest[end + 1..];
            Some(line)
        };
        let status = str::from_utf8(line()?).ok()?.parse().ok()?;
        let mut headers = HeaderMap::new();
        while let Some(line) = line().filter(|line| !line.is_empty()) {
            let at = line.iter().position(|&byte| byte == b':')?;
            let value = line[at + 1..].trim_ascii();
            headers.append(
                HeaderName::from_bytes(&line[..at]).ok()?,
                HeaderValue::from_bytes(value).ok()?,
            );
        }
        Some(Self {
            status,
            headers,
            body: rest.to_vec(),
        })
    }
}

struct Server {
    answer: Answer,
    chunks: Vec<Vec<u8>>,
    asked: RefCell<Vec<GuardedUrl>>,
}

#[async_trait(?Send)]
impl Http for Server {
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
        self.asked.borrow_mut().push(request.url.clone());
        Ok(HttpResponse {
            status: self.answer.status,
            headers: self.answer.headers.clone(),
            body: stream::iter(self.chunks.clone().into_iter().map(Ok)).boxed_local(),
        })
    }
}

/// Time does not pass.
struct Frozen;

impl Clock for Frozen {
    fn now(&self) -> Timestamp {
        0
    }

    fn sleep(&self, _: Duration) -> LocalBoxFuture<'static, ()> {
        futures::future::pending().boxed_local()
    }
}

/// Everything that is seen of the exchange, as text.
fn exchange(answer: &Answer, chunks: Vec<Vec<u8>>) -> Vec<String> {
    let url = GuardedUrl::parse("http://mcp.example/mcp?key=secret").expect("a URL");
    let server = Rc::new(Server {
        answer: answer.clone(),
        chunks,
        asked: RefCell::default(),
    });
    let transport = StreamableHttp::new(
        server.clone(),
        Rc::new(Frozen),
        url,
        HeaderMap::new(),
        LIMIT,
    );
    let message = Outgoing {
        body: "{}".to_owned(),
        headers: HeaderMap::new(),
        id: Some(RequestId::Number(1)),
        resumable: false,
    };
    let seen = futures::executor::block_on(async {
        let answer = match transport.send(&message).await {
            Ok(answer) => answer,
            Err(error) => return vec![shown(&error)],
        };
        let mut seen = Vec::new();
        if let SessionHeader::Id(id) = &answer.session {
            assert!(id.len() <= 1_024 && id.bytes().all(|byte| byte.is_ascii_graphic()));
            assert!(!id.is_empty());
            seen.push(id.clone());
        }
        let mut messages = answer.messages;
        while let Some(message) = messages.next().await {
            seen.push(match message {
                Ok(message) => describe(&message),
                Err(error) => {
                    assert!(messages.next().await.is_none(), "an error ends the stream");
                    return vec![shown(&error)];
                }
            });
        }
        seen
    });
    let asked = server.asked.borrow();
    assert!((1..=6).contains(&asked.len()));
    for url in &*asked {
        assert_eq!(url.url().host_str(), Some("mcp.example"));
        assert_eq!(url.url().port(), None);
    }
    seen
}

/// Messages are short, and say nothing of queries.
fn shown(error: &TransportError) -> String {
    let text = error.to_string();
    assert!(text.chars().count() <= 2_200, "{text}");
    if let TransportError::Redirect(_) = error {
        assert!(!text.contains('?'), "{text}");
    }
    text
}
