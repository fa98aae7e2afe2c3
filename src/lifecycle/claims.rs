//! Who may be installed, and who is asked before whom.

/// What a capability answers of one kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Claim {
    /// What it recognises. It leaves everything else to the next one.
    #[default]
    Selective,
    /// Everything that comes to it. It is asked last.
    CatchAll,
}

/// What a capability answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Claims {
    /// Requests.
    pub requests: Claim,
    /// Requests that open a WebSocket.
    pub upgrades: Claim,
}

impl Claims {
    /// It recognises what is its own: the default.
    pub const SELECTIVE: Self = Self {
        requests: Claim::Selective,
        upgrades: Claim::Selective,
    };

    /// It answers every request that comes to it.
    #[must_use]
    pub fn all_requests(mut self) -> Self {
        self.requests = Claim::CatchAll;
        self
    }

    /// It takes every WebSocket that comes to it.
    #[must_use]
    pub fn all_upgrades(mut self) -> Self {
        self.upgrades = Claim::CatchAll;
        self
    }

    fn is_selective(self) -> bool {
        self == Self::SELECTIVE
    }
}

/// Why a capability is not installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// It has no id.
    #[error("Lifecycle capability IDs must be non-empty")]
    NoId,
    /// Another one has this id, or the lifecycle itself uses it.
    #[error("Lifecycle capability \"{0}\" is already installed")]
    Duplicate(&'static str),
    /// The object has started already.
    #[error("Lifecycle capabilities must be added before startup")]
    TooLate,
    /// Another one answers everything.
    #[error(
        "Lifecycle already has a catch-all for {hook} (\"{id}\"); a second one could never be reached"
    )]
    SecondCatchAll {
        /// The hook.
        hook: &'static str,
        /// Who has it.
        id: &'static str,
    },
}

/// Where in the order of dispatch a capability comes.
pub(crate) fn place(
    installed: &[(&'static str, Claims)],
    id: &'static str,
    claims: Claims,
) -> Result<usize, InstallError> {
    if id.trim().is_empty() {
        return Err(InstallError::NoId);
    }
    if installed.iter().any(|(other, _)| *other == id) {
        return Err(InstallError::Duplicate(id));
    }
    let second = |hook, claim: fn(Claims) -> Claim| {
        let has_it = |other: &&(&'static str, Claims)| claim(other.1) == Claim::CatchAll;
        let first = installed.iter().find(has_it)?;
        let (id, _) = *first;
        (claim(claims) == Claim::CatchAll).then_some(InstallError::SecondCatchAll { hook, id })
    };
    let refusal = second("on_request", |claims| claims.requests)
        .or_else(|| second("on_upgrade", |claims| claims.upgrades));
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    if !claims.is_selective() {
        return Ok(installed.len());
    }
    let first_catch_all = installed
        .iter()
        .position(|(_, other)| !other.is_selective());
    Ok(first_catch_all.unwrap_or(installed.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELECTIVE: Claims = Claims::SELECTIVE;

    #[test]
    fn selective_ones_come_before_those_that_answer_everything() {
        let sockets = SELECTIVE.all_upgrades();
        assert_eq!(place(&[], "a", SELECTIVE), Ok(0));
        assert_eq!(place(&[("a", SELECTIVE)], "b", SELECTIVE), Ok(1));
        assert_eq!(place(&[("a", SELECTIVE)], "b", sockets), Ok(1));
        let installed = [("a", SELECTIVE), ("sockets", sockets)];
        assert_eq!(place(&installed, "b", SELECTIVE), Ok(1));
    }

    #[test]
    fn one_of_a_kind_answers_everything() {
        let sockets = SELECTIVE.all_upgrades();
        let refused = place(&[("sockets", sockets)], "more", sockets);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "Lifecycle already has a catch-all for on_upgrade (\"sockets\"); a second one could never be reached"
        );
        let pages = SELECTIVE.all_requests();
        assert_eq!(place(&[("sockets", sockets)], "pages", pages), Ok(1));
    }

    #[test]
    fn an_id_is_not_empty_and_taken_once() {
        assert_eq!(place(&[], " ", SELECTIVE), Err(InstallError::NoId));
        assert_eq!(
            place(&[("a", SELECTIVE)], "a", SELECTIVE),
            Err(InstallError::Duplicate("a"))
        );
    }
}
