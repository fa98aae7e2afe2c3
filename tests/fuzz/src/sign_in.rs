//! What comes back with a user, on one line the callback, on the next a record as it is stored.

use serde_json::{Map, Value};
use url::Url;
use workers_agents::oauth::{CallbackQuery, ClientInformation, Tokens};

pub fn check(input: &[u8]) {
    let Some([callback, record]) = crate::lines(input) else {
        return;
    };
    if let Ok(url) = Url::parse(&format!("https://app.example/callback?{callback}")) {
        read(&url);
    }
    let Ok(record) = serde_json::from_str::<Map<String, Value>>(record) else {
        return;
    };
    if let Some(tokens) = Tokens::from_record(record.clone()) {
        let again = Tokens::from_record(tokens.to_record()).expect("the same tokens");
        assert!(again == tokens, "it changes by being stored");
        let mut others = tokens.clone();
        others.access_token = "another".into();
        others.refresh_token = None;
        others.rest = Map::new();
        assert_eq!(
            format!("{tokens:?}"),
            format!("{others:?}"),
            "a secret is shown"
        );
    }
    if let Some(client) = ClientInformation::from_record(record) {
        let again = ClientInformation::from_record(client.to_record()).expect("the same client");
        assert!(again == client, "it changes by being stored");
        let mut other = client.clone();
        other.client_secret = None;
        other.ours.private_key = None;
        other.rest = Map::new();
        assert_eq!(
            format!("{client:?}"),
            format!("{other:?}"),
            "a secret is shown"
        );
    }
}

fn read(url: &Url) {
    let Some(query) = CallbackQuery::read(url) else {
        return;
    };
    assert!(!query.nonce.is_empty() && !query.nonce.contains('.') && !query.server_id.is_empty());
    let state = format!("{}.{}", query.nonce, query.server_id);
    let states = url.query_pairs().filter(|(name, _)| name == "state");
    assert_eq!(
        states.map(|(_, value)| value).next().as_deref(),
        Some(&*state)
    );
    let mut other = query.clone();
    other.nonce = "another".into();
    other.code = query.code.as_ref().map(|_| "another".into());
    assert_eq!(
        format!("{query:?}"),
        format!("{other:?}"),
        "a secret is shown"
    );
}
