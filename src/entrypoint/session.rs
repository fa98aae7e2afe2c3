//! Sessions of the dashboard: a cookie in place of the token. Nothing is stored. Pure.
//!
//! The cookie is `<end>.<code>`: when the session ends, in seconds since 1970, and an HMAC-SHA-256 of
//! that under a key that comes from the token. Another token ends every session.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// The name of the cookie.
const COOKIE: &str = "workers-agents-session";
/// How long a session lasts, in seconds.
const LIFETIME: u64 = 12 * 60 * 60;
/// What the key is for, so that a code from elsewhere that uses the token fits nothing here.
const PURPOSE: &[u8] = b"workers-agents dashboard session 1";

/// The header `set-cookie` that begins a session at `now`, in seconds since 1970.
///
/// Scripts cannot read the cookie, and no other site can make a browser send it (RFC 6265bis §5.8).
/// With `secure` the browser sends it over https only.
pub(super) fn begin(token: &str, now: u64, secure: bool) -> Option<String> {
    let end = now.saturating_add(LIFETIME).to_string();
    let code = code(token, &end)?.finalize().into_bytes();
    let value = format!("{end}.{}", URL_SAFE_NO_PAD.encode(code));
    Some(cookie(&value, LIFETIME, secure))
}

/// The header `set-cookie` that ends it.
pub(super) fn end(secure: bool) -> String {
    cookie("", 0, secure)
}

/// Whether the header `cookie` holds a session that has begun with this token and has not ended.
pub(super) fn is_valid(token: &str, cookies: &str, now: u64) -> bool {
    cookies
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='))
        .any(|(name, value)| name == COOKIE && check(token, value, now).is_some())
}

fn check(token: &str, value: &str, now: u64) -> Option<()> {
    let (end, given) = value.split_once('.')?;
    let given = URL_SAFE_NO_PAD.decode(given).ok()?;
    // In constant time, and before anything is read from the text.
    code(token, end)?.verify_slice(&given).ok()?;
    let end: u64 = end.parse().ok()?;
    (now < end && end - now <= LIFETIME).then_some(())
}

fn code(token: &str, end: &str) -> Option<Hmac<Sha256>> {
    let key = Hmac::<Sha256>::new_from_slice(token.as_bytes()).ok()?;
    let key = key.chain_update(PURPOSE).finalize().into_bytes();
    let code = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    Some(code.chain_update(end.as_bytes()))
}

fn cookie(value: &str, max_age: u64, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// The header `cookie` that a browser sends for a header `set-cookie`.
    fn sent(set: &str) -> String {
        set.split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_session_lasts_its_time_and_no_longer() {
        let cookie = sent(&begin("s3cret", NOW, true).unwrap());
        for (now, is_on) in [
            (NOW, true),
            (NOW + LIFETIME - 1, true),
            (NOW + LIFETIME, false),
            // The clock went back further than a session lasts.
            (NOW - 1, false),
            (0, false),
            (u64::MAX, false),
        ] {
            assert_eq!(is_valid("s3cret", &cookie, now), is_on, "{now}");
        }
    }

    #[test]
    fn another_token_ends_every_session() {
        let cookie = sent(&begin("s3cret", NOW, true).unwrap());
        assert!(!is_valid("s3cret2", &cookie, NOW));
        assert!(!is_valid("", &cookie, NOW));
    }

    #[test]
    fn the_cookie_holds_nothing_of_the_token() {
        let set = begin("s3cret", NOW, true).unwrap();
        let encoded = URL_SAFE_NO_PAD.encode("s3cret");
        assert!(!set.contains("s3cret") && !set.contains(&encoded), "{set}");
    }

    #[test]
    fn a_session_cannot_be_made_up_or_made_longer() {
        let cookie = sent(&begin("s3cret", NOW, false).unwrap());
        let (_, code) = cookie.split_once('.').unwrap();
        let end = NOW + LIFETIME;
        for value in [
            format!("{}.{code}", end + 1),
            format!("+{end}.{code}"),
            format!("0{end}.{code}"),
            format!("{end}.{}", &code[..code.len() - 1]),
            format!("{end}.{code}A"),
            format!("{end}."),
            format!("{end}"),
            format!(".{code}"),
            String::new(),
            "s3cret".into(),
        ] {
            let cookies = format!("{COOKIE}={value}");
            assert!(!is_valid("s3cret", &cookies, NOW), "{cookies}");
        }
        assert!(!is_valid("s3cret", &format!("x{cookie}"), NOW));
        // Others may have set some more.
        let among = format!("a=b; {COOKIE}=1.x; {cookie};  c");
        assert!(is_valid("s3cret", &among, NOW));
    }

    #[test]
    fn only_the_browser_reads_it_and_only_for_this_site() {
        for (secure, set) in [
            (true, begin("s3cret", NOW, true).unwrap()),
            (false, begin("s3cret", NOW, false).unwrap()),
            (true, end(true)),
        ] {
            let attributes: Vec<&str> = set.split("; ").skip(1).collect();
            for attribute in ["Path=/", "HttpOnly", "SameSite=Strict"] {
                assert!(attributes.contains(&attribute), "{set}");
            }
            assert_eq!(attributes.contains(&"Secure"), secure, "{set}");
        }
        assert!(end(true).contains("=; ") && end(true).contains("Max-Age=0"));
    }
}
