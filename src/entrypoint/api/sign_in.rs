//! What a request says of how permission for a server is got.

use serde::Deserialize;
use worker::Request;

use super::Problem;
use crate::mcp::RegisterServer;
use crate::oauth::{AuthMethod, ClientInformation, OAuthSettings};

/// The member `oauth` of a server that is added.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct AddOAuth {
    client_id: Option<String>,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
    /// PKCS#8 in PEM, or a JWK as text.
    private_key: Option<String>,
    signing_algorithm: Option<String>,
    issuer: Option<String>,
    scope: Option<String>,
    grant: Option<String>,
    client_metadata_url: Option<String>,
    dpop: Option<bool>,
    allow_missing_pkce: bool,
    omit_resource: bool,
}

impl AddOAuth {
    /// Adds all that is said.
    pub(super) fn add_to(self, mut server: RegisterServer) -> Result<RegisterServer, Problem> {
        let refuse = |detail: &str| Problem::new(422, "invalid-option", detail);
        match self.grant.as_deref() {
            None | Some("authorization_code") => {}
            Some("client_credentials") if self.client_id.is_some() => {
                server = server.as_client_itself();
            }
            Some("client_credentials") => {
                return Err(refuse("client_credentials needs a clientId"));
            }
            Some(_) => {
                return Err(refuse(
                    "grant is neither authorization_code nor client_credentials",
                ));
            }
        }
        if let Some(url) = self.client_metadata_url {
            server = server.client_metadata_url(url);
        }
        let settings = OAuthSettings {
            scope: self.scope,
            issuer: self.issuer,
            dpop: self.dpop,
            allow_missing_pkce: self.allow_missing_pkce,
            omit_resource: self.omit_resource,
        };
        server = server.oauth_settings(settings);
        let Some(client_id) = self.client_id else {
            return match (self.client_secret, self.private_key) {
                (None, None) => Ok(server),
                _ => Err(refuse("a secret or a key needs a clientId")),
            };
        };
        let method = self.token_endpoint_auth_method;
        if let Some(method) = &method
            && AuthMethod::parse(method).is_none()
        {
            return Err(refuse("tokenEndpointAuthMethod is not supported"));
        }
        let mut client = ClientInformation::public(client_id);
        client.client_secret = self.client_secret;
        client.token_endpoint_auth_method = method;
        client.ours.private_key = self.private_key;
        client.ours.signing_algorithm = self.signing_algorithm;
        Ok(server.client(client))
    }
}

/// Where users of this object come back to: at the configured origin, or at that of the request.
pub(super) fn callback_url(
    request: &Request,
    public_origin: Option<&str>,
) -> Result<String, Problem> {
    let url = request.url()?;
    let origin = match public_origin {
        None => url.origin(),
        Some(origin) => url::Url::parse(origin)
            .map(|origin| origin.origin())
            .ok()
            .filter(url::Origin::is_tuple)
            .ok_or_else(|| Problem::new(500, "runtime", "PUBLIC_ORIGIN is not an origin"))?,
    };
    // `/agents/<class>/<name>`, to the letter.
    let path: Vec<&str> = url.path().split('/').take(4).collect();
    Ok(format!(
        "{}{}/callback",
        origin.ascii_serialization(),
        path.join("/")
    ))
}
