//! Protocol revisions, and what a first answer says about the server's era.

use super::bounded::{raw_member, small_member};
use super::jsonrpc::RpcError;
use super::model::ServerCard;
use super::{ProtocolError, clip};
use serde_json::value::RawValue;

/// How a revision is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With an `initialize` handshake: 2025-11-25 and older.
    Legacy,
    /// Without one: 2026-07-28.
    Modern,
}

/// The revisions this client speaks, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// 2024-11-05
    V2024_11_05,
    /// 2025-03-26
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25
    V2025_11_25,
    /// 2026-07-28
    V2026_07_28,
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// What `initialize` offers. It never offers a modern revision.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;
    /// What the probe offers.
    pub const NEWEST_MODERN: Self = Self::V2026_07_28;

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision of this name, if this client speaks it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == text)
    }

    /// How it is spoken.
    pub const fn era(self) -> Era {
        match self {
            Self::V2026_07_28 => Era::Modern,
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => {
                Era::Legacy
            }
        }
    }

    /// The newest modern revision among `names`, if any.
    fn newest_modern(names: &[String]) -> Option<Self> {
        names
            .iter()
            .filter_map(|name| Self::parse(name))
            .filter(|revision| revision.era() == Era::Modern)
            .max()
    }
}

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What came back for the probe, `server/discover`.
#[derive(Debug)]
pub enum ProbeAnswer<'a> {
    /// Status 2xx with a JSON-RPC result.
    Result(&'a RawValue),
    /// A JSON-RPC error, and the status it came with.
    Error(u16, &'a RpcError),
    /// A status other than 2xx without a JSON-RPC error.
    Status(u16),
}

/// What an answer to the probe means.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Modern: no handshake needed.
    Modern(Revision, Box<ServerCard>),
    /// Modern, but the probe must be sent once more, with this revision.
    ProbeAgain(Revision),
    /// Go on with `initialize`.
    Legacy,
    /// Nothing follows from it about the era. Authorization, or a server in trouble.
    NoEvidence,
    /// Modern, and there is no common revision; or modern, and refusing our request.
    Refused(ProtocolError),
    /// Modern, and the server refuses the request itself: headers or a capability.
    RefusedRequest,
}

/// Judges the answer to a probe (MCP 2026-07-28, "Backward Compatibility"; versioning).
///
/// Never looks at texts, and never takes one particular error code as the sign of a legacy server:
/// those answer an unknown method with whatever they like. Codes −32020 and −32021 count as modern,
/// as the page has it; the reference's classifier takes them for legacy.
pub fn judge(answer: &ProbeAnswer<'_>) -> Verdict {
    match answer {
        ProbeAnswer::Status(status) | ProbeAnswer::Error(status, _) if !is_evidence(*status) => {
            Verdict::NoEvidence
        }
        ProbeAnswer::Error(_, error) if error.code == RpcError::UNSUPPORTED_VERSION => {
            judge_refusal(error)
        }
        ProbeAnswer::Error(400, error)
            if matches!(
                error.code,
                RpcError::HEADER_MISMATCH | RpcError::MISSING_CAPABILITY
            ) =>
        {
            Verdict::RefusedRequest
        }
        ProbeAnswer::Error(..) | ProbeAnswer::Status(_) => Verdict::Legacy,
        ProbeAnswer::Result(result) => judge_result(result),
    }
}

/// Whether a status says anything about the era. Authorization, overload and trouble do not.
pub const fn is_evidence(status: u16) -> bool {
    !matches!(status, 401 | 403 | 408 | 425 | 429 | 500..)
}

fn judge_refusal(error: &RpcError) -> Verdict {
    let supported = error.supported_versions();
    if let Some(revision) = Revision::newest_modern(&supported) {
        return Verdict::ProbeAgain(revision);
    }
    // A list of unknown revisions that are not older than ours can only be modern ones.
    let foreign = !supported.is_empty() && supported.iter().all(|name| is_after_legacy(name));
    if foreign {
        Verdict::Refused(ProtocolError::NoCommonVersion(supported))
    } else {
        Verdict::Legacy
    }
}

/// Revisions are dates, so later ones sort after earlier ones.
fn is_after_legacy(name: &str) -> bool {
    Revision::parse(name).is_none() && name > Revision::NEWEST_LEGACY.as_str()
}

fn judge_result(result: &RawValue) -> Verdict {
    let versions: Option<Vec<String>> = small_member(result, "supportedVersions", MAX_VERSIONS);
    let Some(versions) = versions else {
        return Verdict::Legacy;
    };
    match Revision::newest_modern(&versions) {
        Some(revision) => Verdict::Modern(revision, Box::new(discovered(result))),
        None if versions.iter().any(|name| Revision::parse(name).is_some()) => Verdict::Legacy,
        None => Verdict::Refused(ProtocolError::NoCommonVersion(
            versions
                .iter()
                .take(32)
                .map(|name| clip(name, 40))
                .collect(),
        )),
    }
}

/// The longest list of revisions that is read, in bytes of JSON.
const MAX_VERSIONS: usize = 4 << 10;

/// The server's identity belongs into `_meta`; a `serverInfo` beside the capabilities, as some
/// servers send it, is taken where `_meta` has none.
fn discovered(result: &RawValue) -> ServerCard {
    let mut card = ServerCard::read(result);
    let identity = raw_member(result, "_meta")
        .and_then(|meta| small_member(meta, "io.modelcontextprotocol/serverInfo", MAX_VERSIONS));
    card.server_info = identity.or(card.server_info);
    card
}

/// Reads the result of `initialize`: the revision agreed on, and what the server says of itself.
///
/// # Errors
/// When it names no revision, or none of ours, or a modern one, which a handshake cannot agree on.
pub fn read_initialize(result: &RawValue) -> Result<(Revision, ServerCard), ProtocolError> {
    let version: String =
        small_member(result, "protocolVersion", MAX_VERSIONS).ok_or_else(|| {
            ProtocolError::MalformedResult {
                method: "initialize",
                reason: "\"protocolVersion\" is missing".into(),
            }
        })?;
    let revision = Revision::parse(&version)
        .filter(|revision| revision.era() == Era::Legacy)
        .ok_or_else(|| ProtocolError::UnsupportedVersion(clip(&version, 40)))?;
    Ok((revision, ServerCard::read(result)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(code: i64, data: &serde_json::Value) -> RpcError {
        RpcError::new(code, String::new(), Some(raw(data).into()))
    }

    fn raw(value: &serde_json::Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    #[test]
    fn errors_and_statuses_are_judged_by_number() {
        use Verdict::*;
        let none = || json!(null);
        for (status, code, data, verdict) in [
            (
                400,
                -32022,
                json!({"supported": ["2026-07-28"]}),
                ProbeAgain(Revision::V2026_07_28),
            ),
            (
                200,
                -32022,
                json!({"supported": ["2025-11-25", "2026-07-28"]}),
                ProbeAgain(Revision::V2026_07_28),
            ),
            (400, -32022, json!({"supported": ["2025-11-25"]}), Legacy),
            (400, -32022, json!({"supported": []}), Legacy),
            (400, -32022, none(), Legacy),
            (
                400,
                -32022,
                json!({"supported": ["2031-01-01"]}),
                Refused(ProtocolError::NoCommonVersion(vec!["2031-01-01".into()])),
            ),
            (400, -32022, json!({"supported": ["2024-10-07"]}), Legacy),
            (400, -32020, none(), RefusedRequest),
            (400, -32021, none(), RefusedRequest),
            (200, -32601, none(), Legacy),
            (404, -32601, none(), Legacy),
            (400, -32000, none(), Legacy),
            (400, -32001, none(), Legacy),
            (
                500,
                -32022,
                json!({"supported": ["2026-07-28"]}),
                NoEvidence,
            ),
            (503, -32601, none(), NoEvidence),
            (401, -32601, none(), NoEvidence),
            (408, -32601, none(), NoEvidence),
            (429, -32000, none(), NoEvidence),
            (
                403,
                -32022,
                json!({"supported": ["2026-07-28"]}),
                NoEvidence,
            ),
        ] {
            assert_eq!(
                judge(&ProbeAnswer::Error(status, &error(code, &data))),
                verdict,
                "{status} {code}"
            );
        }
        for (status, verdict) in [
            (400, Legacy),
            (404, Legacy),
            (405, Legacy),
            (406, Legacy),
            (415, Legacy),
            (422, Legacy),
            (401, NoEvidence),
            (403, NoEvidence),
            (408, NoEvidence),
            (429, NoEvidence),
            (500, NoEvidence),
            (502, NoEvidence),
            (599, NoEvidence),
        ] {
            assert_eq!(judge(&ProbeAnswer::Status(status)), verdict, "{status}");
        }
    }

    #[test]
    fn a_discover_result_decides_by_its_versions() {
        let modern = raw(
            &json!({"supportedVersions": ["2025-11-25", "2026-07-28"], "capabilities": {"tools": {}},
            "instructions": "be kind", "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "pier"}}}),
        );
        let Verdict::Modern(revision, card) = judge(&ProbeAnswer::Result(&modern)) else {
            panic!()
        };
        assert_eq!(revision, Revision::V2026_07_28);
        assert!(card.offers("tools") && !card.offers("prompts"));
        assert_eq!(card.instructions.as_deref(), Some("be kind"));
        assert_eq!(card.server_info, Some(json!({"name": "pier"})));

        assert_eq!(
            judge(&ProbeAnswer::Result(&raw(
                &json!({"supportedVersions": ["2025-06-18"]})
            ))),
            Verdict::Legacy
        );
        assert_eq!(
            judge(&ProbeAnswer::Result(&raw(&json!({})))),
            Verdict::Legacy
        );
        assert_eq!(
            judge(&ProbeAnswer::Result(&raw(&json!(null)))),
            Verdict::Legacy
        );
        assert!(matches!(
            judge(&ProbeAnswer::Result(&raw(
                &json!({"supportedVersions": ["2031-01-01"]})
            ))),
            Verdict::Refused(_)
        ));
    }

    #[test]
    fn a_handshake_agrees_on_a_legacy_revision_only() {
        let parse = |version: &str| {
            read_initialize(&raw(&json!({"protocolVersion": version})))
                .map(|(revision, _)| revision)
        };
        assert!(read_initialize(&raw(&json!({}))).is_err());
        assert!(read_initialize(&raw(&json!([]))).is_err());
        assert_eq!(parse("2025-03-26"), Ok(Revision::V2025_03_26));
        assert!(parse("2026-07-28").is_err());
        assert!(parse("1999-01-01").is_err());
    }
}
