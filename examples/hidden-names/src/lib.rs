//! An agent for each browser, found by a cookie: no URL, no frame and no callback shows its name.

use worker::{Context, Env, Request, Response, Result, event};
use workers_agents::{
    AddMcpServer, AddedServer, AgentOptions, Hooks, OAuthCallback, ServerFilter, agent_by_name,
};

/// Where users come back to after a sign-in. The cookie says to which agent.
const CALLBACK: &str = "/mcp/callback";
const COOKIE: &str = "session";
/// 256 bits in hexadecimal digits.
const SESSION_DIGITS: usize = 64;

workers_agents::agent! { pub struct HiddenAgent; with options }

fn options(_: &Env) -> AgentOptions {
    let mut options = AgentOptions::default();
    // Browsers are not told the name, and a server without a callback path is refused.
    options.sends_identity_on_connect = false;
    options
}

impl Hooks for HiddenAgent {
    async fn on_start(&self) -> Result<()> {
        let callback = OAuthCallback::new().success_redirect("/");
        self.agent.mcp().configure_oauth_callback(callback);
        Ok(())
    }

    async fn on_request(&self, request: Request) -> Result<Response> {
        if request.path() != "/" {
            return Response::error("Not found", 404);
        }
        let url = self.agent.env().var("MCP_URL")?.to_string();
        let server = AddMcpServer::new("Protected", url).callback_path(CALLBACK);
        match self.agent.add_mcp_server(server).await? {
            AddedServer::Ready { .. } => {
                Response::from_json(&self.agent.mcp().list_tools(&ServerFilter::all()))
            }
            AddedServer::Authenticating { auth_url, .. } => {
                Response::redirect(auth_url.as_str().parse()?)
            }
        }
    }
}

/// Every path leads to the agent of the browser's session, WebSockets too: `basePath` of the npm
/// clients is any path then.
#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    if let Some(session) = session_of(&request)? {
        let agent = agent_by_name(&env, "HiddenAgent", &session).await?;
        return agent.fetch(request).await;
    }
    // A session begins with a visit of the page, and with nothing else.
    let url = request.url()?;
    if url.path() != "/" {
        return Response::error("No session: begin at /", 401);
    }
    let session = new_session()?;
    // `Lax`: the cookie comes along when an authorization server sends the user back.
    let secure = if url.scheme() == "https" {
        "; Secure"
    } else {
        ""
    };
    let cookie = format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Lax{secure}");
    let mut response = Response::empty()?.with_status(303);
    response.headers_mut().set("location", "/")?;
    response.headers_mut().set("set-cookie", &cookie)?;
    Ok(response)
}

/// The name of the browser's agent. Nobody guesses that of another.
fn session_of(request: &Request) -> Result<Option<String>> {
    let cookies = request.headers().get("cookie")?.unwrap_or_default();
    let session = cookies.split(';').find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE).then(|| value.to_owned())
    });
    Ok(session.filter(|session| {
        session.len() == SESSION_DIGITS && session.bytes().all(|byte| byte.is_ascii_hexdigit())
    }))
}

fn new_session() -> Result<String> {
    let mut bytes = [0_u8; SESSION_DIGITS / 2];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
