//! The skills of a server: listed, loaded when asked for, and checked before they are used.

use std::collections::HashSet;
use std::fmt;

use super::{ConnectionState, McpClientManager, ServerId};
use crate::protocol::request::Params;
use crate::protocol::skills::{self, EXTENSION, GET, LIST, Page};
use crate::protocol::{ProtocolError, ReadResourceResult, RpcError, Skill, SkillMismatch};
use crate::{Error, Result};

/// A skill whose `SKILL.md` has been read and is what its server listed.
///
/// It stays bound to the server it was read from. Its text is untrusted all the same: tell the model
/// where it comes from, and let it run or permit nothing that the user has not agreed to.
#[derive(Clone)]
pub struct LoadedSkill {
    server_id: ServerId,
    skill: Skill,
    text: String,
}

impl LoadedSkill {
    /// The server that the skill comes from.
    pub fn server_id(&self) -> &ServerId {
        &self.server_id
    }

    /// The entry that it was checked against.
    pub fn skill(&self) -> &Skill {
        &self.skill
    }

    /// The whole text of `SKILL.md`, frontmatter included.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for LoadedSkill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedSkill")
            .field("server_id", &self.server_id)
            .field("skill", &self.skill)
            .finish_non_exhaustive()
    }
}

impl McpClientManager {
    /// Lists the skills of a server; none, without asking, when it does not declare the extension
    /// `io.modelcontextprotocol/skills`. Reads no file of any skill.
    ///
    /// What describes no skill is left out, and so is a second entry for one URI. The list ends at
    /// the manager's limits for lists ([`max_list_pages`], [`max_list_items`], [`max_list_bytes`]);
    /// what was listed until then is returned. A server need not list every skill it has: see
    /// [`get_skill`](Self::get_skill).
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool); [`Error::Protocol`] when a page is malformed, or the first
    /// one is over a limit.
    ///
    /// [`max_list_pages`]: super::McpClientOptions::max_list_pages
    /// [`max_list_items`]: super::McpClientOptions::max_list_items
    /// [`max_list_bytes`]: super::McpClientOptions::max_list_bytes
    pub async fn list_skills(&self, server_id: &str) -> Result<Vec<Skill>> {
        if !self.offers_skills(server_id).await? {
            return Ok(Vec::new());
        }
        let options = self.inner.common.options.clone();
        let (mut skills, mut seen) = (Vec::new(), HashSet::new());
        let (mut items, mut bytes) = (0, 0);
        let mut cursor: Option<String> = None;
        for _ in 0..options.max_list_pages {
            let params = match &cursor {
                Some(cursor) => member("cursor", cursor)?,
                None => Params::default(),
            };
            let result = match self.call(server_id, LIST, None, params).await {
                // Declared, and then not implemented: no more than an empty list.
                Err(Error::Rpc(RpcError {
                    code: RpcError::METHOD_NOT_FOUND,
                    ..
                })) => return Ok(skills),
                result => result?,
            };
            bytes += result.get().len();
            if bytes > options.max_list_bytes {
                let bytes = options.max_list_bytes;
                return cut(
                    skills,
                    ProtocolError::ListTooLarge {
                        method: LIST,
                        bytes,
                    },
                );
            }
            let page = Page::read(&result, options.max_list_items - items)?;
            items += page.entries.len();
            let had_entries = !page.entries.is_empty();
            let known = seen.len();
            for skill in page.entries.into_iter().map(Skill::from_json) {
                match skill {
                    Ok(skill) if seen.insert(skill.uri().to_owned()) => skills.push(skill),
                    Ok(_) | Err(_) => {}
                }
            }
            if page.has_more {
                let items = options.max_list_items;
                return cut(
                    skills,
                    ProtocolError::ListTooLong {
                        method: LIST,
                        items,
                    },
                );
            }
            // A page that brings nothing new while it could, or leads to itself, goes in circles.
            let in_circles = seen.len() == known && (had_entries || page.next_cursor == cursor);
            if page.next_cursor.is_none() || in_circles {
                return Ok(skills);
            }
            cursor = page.next_cursor;
        }
        let pages = options.max_list_pages;
        cut(
            skills,
            ProtocolError::EndlessList {
                method: LIST,
                pages,
            },
        )
    }

    /// Gets the entry of one skill by the URI of its `SKILL.md`, listed or not. This is also how a
    /// skill that has changed is looked up again. Reads no file.
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool); [`Error::Rpc`] when the server has no such skill;
    /// [`Error::Protocol`] when it answers with anything but the entry of that skill;
    /// [`Error::InvalidOption`] when it does not declare the extension.
    pub async fn get_skill(&self, server_id: &str, uri: &str) -> Result<Skill> {
        if !self.offers_skills(server_id).await? {
            return Err(Error::InvalidOption("the server offers no skills".into()));
        }
        let params = member("uri", uri)?;
        let result = self.call(server_id, GET, None, params).await?;
        Ok(skills::one(&result, uri)?)
    }

    /// Reads the `SKILL.md` of a skill and checks it: size, digest and frontmatter. Reads nothing
    /// else. Ask the user before.
    ///
    /// A skill of more than 512 files or 16 MiB is not loaded.
    ///
    /// # Errors
    /// As [`read_resource`](Self::read_resource); [`Error::Skill`] when it is not what was listed.
    pub async fn load_skill(&self, server_id: &str, skill: &Skill) -> Result<LoadedSkill> {
        skill.check_size()?;
        let result = self.read_resource(server_id, skill.uri()).await?;
        let bytes = skills::content(result.json(), skill.uri())?;
        skill.verify(&bytes)?;
        let text = String::from_utf8(bytes).map_err(|_| SkillMismatch::UnreadableFrontmatter {
            reason: "it is not UTF-8",
        })?;
        Ok(LoadedSkill {
            server_id: ServerId::verbatim(server_id),
            skill: skill.clone(),
            text,
        })
    }

    /// Reads a file of a loaded skill from the server that the skill comes from, by its path within
    /// the skill's folder (`references/FORMS.md`), and checks it.
    ///
    /// Only listed files can be read. Of a skill whose files are made as they are read
    /// ([`Skill::files`]), any file within its folder can, unchecked, up to 16 MiB.
    ///
    /// # Errors
    /// As [`read_resource`](Self::read_resource); [`Error::Skill`] when the skill has no such file,
    /// or it is not what was listed.
    pub async fn read_skill_file(
        &self,
        skill: &LoadedSkill,
        path: &str,
    ) -> Result<ReadResourceResult> {
        let uri = skill.skill.resolve(path)?;
        let result = self.read_resource(skill.server_id.as_str(), &uri).await?;
        let bytes = skills::content(result.json(), &uri)?;
        skill.skill.verify_file(&uri, &bytes)?;
        Ok(result)
    }

    /// Whether the server has declared the extension, for which a connection that is just being
    /// opened is waited for.
    async fn offers_skills(&self, server_id: &str) -> Result<bool> {
        let is_connecting = self
            .connection(server_id)
            .is_some_and(|info| info.state == ConnectionState::Connecting);
        if is_connecting {
            self.connect_to_server(server_id).await?;
        }
        let card = self.connection(server_id).and_then(|info| info.card);
        // Without a connection, the call says what is wrong.
        Ok(card.is_none_or(|card| card.offers_extension(EXTENSION)))
    }
}

/// A list that had to be cut is better than none.
fn cut(skills: Vec<Skill>, error: ProtocolError) -> Result<Vec<Skill>> {
    if skills.is_empty() {
        return Err(error.into());
    }
    Ok(skills)
}

fn member(name: &'static str, text: &str) -> Result<Params> {
    Params::default()
        .with(name, &text)
        .map_err(|error| Error::InvalidOption(error.to_string()))
}
