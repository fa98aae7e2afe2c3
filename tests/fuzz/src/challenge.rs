//! `WWW-Authenticate`, all its values joined.

use workers_agents::oauth::Challenge;

pub fn check(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let (challenge, peak) = crate::peak_of(|| Challenge::parse(text));
    // Judging the host of a URL takes tables.
    assert!(
        peak <= 16 * text.len() + 65_536,
        "{peak} bytes for {}",
        text.len()
    );
    let Some(challenge) = challenge else {
        return;
    };
    assert_eq!(challenge.scheme, challenge.scheme.to_ascii_lowercase());
    if let Some(url) = &challenge.resource_metadata {
        assert!(
            url.starts_with("http://")
                || url.starts_with("https://")
                || url::Url::parse(url).is_ok()
        );
    }
    if let Some(scope) = &challenge.scope {
        assert!(!scope.is_empty() && scope.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        assert!(!scope.contains("  ") && scope.trim() == scope);
    }
    // What it says of itself it would say again.
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    if let (Some(scope), None) = (&challenge.scope, &challenge.resource_metadata) {
        let again = Challenge::parse(&format!("Bearer scope=\"{}\"", quoted(scope)));
        assert_eq!(
            again.and_then(|again| again.scope).as_deref(),
            Some(&**scope)
        );
    }
}
