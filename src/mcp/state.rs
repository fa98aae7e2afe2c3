//! The connection's state machine. Pure: an event and a phase go in, the next phase comes out.

use std::fmt;

use serde::Serialize;

use crate::Error;

/// The state of a server, as users and browsers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ConnectionState {
    /// Stored, without a live connection.
    NotConnected,
    /// The server wants the user to sign in first.
    Authenticating,
    /// Being opened, or waiting for its turn to be opened again after a wake.
    Connecting,
    /// Open; the catalogue is not loaded.
    Connected,
    /// Open; the catalogue is being loaded.
    Discovering,
    /// Open; the catalogue is loaded.
    Ready,
    /// The last attempt failed.
    Failed,
}

impl ConnectionState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::NotConnected,
        Self::Authenticating,
        Self::Connecting,
        Self::Connected,
        Self::Discovering,
        Self::Ready,
        Self::Failed,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotConnected => "not-connected",
            Self::Authenticating => "authenticating",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Discovering => "discovering",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether requests can be sent.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Connected | Self::Discovering | Self::Ready)
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a connection stands, with what exists only there.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    /// The user must sign in, or consent to more. Where it is only more, what was consented to
    /// before stays usable.
    Authenticating {
        usable: bool,
    },
    Connecting,
    Connected,
    Discovering,
    Ready,
    Failed(Error),
}

/// What happened to a connection.
#[derive(Debug)]
pub(crate) enum Event {
    /// An attempt begins. Legal everywhere: it replaces whatever was.
    Connect,
    /// Transport and handshake are done.
    Opened,
    /// The attempt failed. Legal everywhere.
    Failed(Error),
    /// Loading the catalogue begins.
    Discover,
    /// The catalogue is loaded.
    Discovered,
    /// Loading failed; the connection stays usable.
    DiscoveryFailed,
    /// The user must sign in, or consent to more. Legal everywhere.
    SignIn { usable: bool },
    /// The user has come back. Legal everywhere.
    Returned,
    /// The user has consented to more, or has not; what was usable stays so.
    Answered { listed: bool },
}

/// The event does not fit the phase.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IllegalMove;

impl Phase {
    /// The only place that moves a phase.
    pub(crate) fn on(&self, event: Event) -> Result<Self, IllegalMove> {
        match (self, event) {
            (_, Event::Connect | Event::Returned) => Ok(Self::Connecting),
            (_, Event::SignIn { usable }) => Ok(Self::Authenticating { usable }),
            (Self::Authenticating { usable: true }, Event::Answered { listed }) => {
                Ok(if listed { Self::Ready } else { Self::Connected })
            }
            (_, Event::Failed(error)) => Ok(Self::Failed(error)),
            (Self::Connecting, Event::Opened) | (Self::Discovering, Event::DiscoveryFailed) => {
                Ok(Self::Connected)
            }
            (Self::Connected | Self::Ready, Event::Discover) => Ok(Self::Discovering),
            (Self::Discovering, Event::Discovered) => Ok(Self::Ready),
            (
                Self::Authenticating { .. }
                | Self::Connecting
                | Self::Connected
                | Self::Discovering
                | Self::Ready
                | Self::Failed(_),
                Event::Opened
                | Event::Discover
                | Event::Discovered
                | Event::DiscoveryFailed
                | Event::Answered { .. },
            ) => Err(IllegalMove),
        }
    }

    /// The view without data.
    pub(crate) fn state(&self) -> ConnectionState {
        match self {
            Self::Authenticating { .. } => ConnectionState::Authenticating,
            Self::Connecting => ConnectionState::Connecting,
            Self::Connected => ConnectionState::Connected,
            Self::Discovering => ConnectionState::Discovering,
            Self::Ready => ConnectionState::Ready,
            Self::Failed(_) => ConnectionState::Failed,
        }
    }

    /// Why it failed, if it did.
    pub(crate) fn error(&self) -> Option<&Error> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Authenticating { .. }
            | Self::Connecting
            | Self::Connected
            | Self::Discovering
            | Self::Ready => None,
        }
    }

    /// Whether requests can be sent.
    pub(crate) fn is_usable(&self) -> bool {
        self.state().is_open() || matches!(self, Self::Authenticating { usable: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionState as S;

    fn phase(state: S) -> Phase {
        match state {
            S::Authenticating => Phase::Authenticating { usable: true },
            S::Connecting => Phase::Connecting,
            S::Connected => Phase::Connected,
            S::Discovering => Phase::Discovering,
            S::Ready => Phase::Ready,
            S::Failed => Phase::Failed(Error::Closed),
            S::NotConnected => panic!("no phase"),
        }
    }

    /// An event, and where it leads from each phase. `None` is illegal.
    type Row = (fn() -> Event, [Option<S>; 6]);

    #[test]
    fn every_pair_of_phase_and_event_leads_where_the_table_says() {
        let phases = [
            S::Authenticating,
            S::Connecting,
            S::Connected,
            S::Discovering,
            S::Ready,
            S::Failed,
        ];
        let table: [Row; 9] = [
            (|| Event::Returned, [Some(S::Connecting); 6]),
            (
                || Event::SignIn { usable: false },
                [Some(S::Authenticating); 6],
            ),
            (
                || Event::Answered { listed: true },
                [Some(S::Ready), None, None, None, None, None],
            ),
            (|| Event::Connect, [Some(S::Connecting); 6]),
            (|| Event::Failed(Error::Closed), [Some(S::Failed); 6]),
            (
                || Event::Opened,
                [None, Some(S::Connected), None, None, None, None],
            ),
            (
                || Event::Discover,
                [
                    None,
                    None,
                    Some(S::Discovering),
                    None,
                    Some(S::Discovering),
                    None,
                ],
            ),
            (
                || Event::Discovered,
                [None, None, None, Some(S::Ready), None, None],
            ),
            (
                || Event::DiscoveryFailed,
                [None, None, None, Some(S::Connected), None, None],
            ),
        ];
        for (event, outcomes) in table {
            for (from, to) in phases.into_iter().zip(outcomes) {
                let found = phase(from).on(event()).ok().map(|phase| phase.state());
                assert_eq!(found, to, "{from} on {:?}", event());
            }
        }
    }

    #[test]
    fn names_are_those_of_the_wire() {
        for state in S::ALL {
            assert_eq!(S::parse(state.as_str()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!(S::parse("nope"), None);
    }
}
