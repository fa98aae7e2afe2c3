//! The object's storage: the table of servers, and the synchronous key-value store.

use std::cell::Cell;

use async_trait::async_trait;
use wasm_bindgen::prelude::*;
use worker::{SqlStorage, SqlStorageValue, Storage};

use crate::ports::{DamagedRow, KeyValueStore, ServerRow, ServerStore, StoreError};

const SCHEMA_KEY: &str = "cf_agents:mcp_schema_version";
const SCHEMA_VERSION: f64 = 1.0;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS cf_agents_mcp_servers (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    server_url TEXT NOT NULL,
    callback_url TEXT NOT NULL,
    client_id TEXT,
    auth_url TEXT,
    server_options TEXT
)";
const EXISTS: &str = "SELECT 1 FROM sqlite_master WHERE name = 'cf_agents_mcp_servers'";
const LIST: &str = "SELECT id, name, server_url, callback_url, client_id, auth_url, server_options
    FROM cf_agents_mcp_servers ORDER BY rowid";
const GET: &str = "SELECT id, name, server_url, callback_url, client_id, auth_url, server_options
    FROM cf_agents_mcp_servers WHERE id = ?";
// Not `INSERT OR REPLACE`: that would move the row to the end of the list.
const PUT: &str = "INSERT INTO cf_agents_mcp_servers
    (id, name, server_url, callback_url, client_id, auth_url, server_options)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, server_url = excluded.server_url,
        callback_url = excluded.callback_url, client_id = excluded.client_id,
        auth_url = excluded.auth_url, server_options = excluded.server_options";
const SET_OPTIONS: &str = "UPDATE cf_agents_mcp_servers SET server_options = ? WHERE id = ?";
const RENAME: &str = "UPDATE cf_agents_mcp_servers SET id = ? WHERE id = ? RETURNING id";
const DELETE: &str = "DELETE FROM cf_agents_mcp_servers WHERE id = ? RETURNING id";

type Row = Vec<SqlStorageValue>;

/// The table of servers. It is made when the first server is stored: anybody can wake an object by
/// its name, and that must leave nothing behind.
pub(super) struct SqlServerStore {
    sql: SqlStorage,
    kv: KeyValue,
    is_there: Cell<bool>,
}

impl SqlServerStore {
    pub(super) fn new(storage: &Storage) -> Self {
        Self {
            sql: storage.sql(),
            kv: KeyValue::of(storage),
            is_there: Cell::new(false),
        }
    }

    fn is_there(&self) -> Result<bool, StoreError> {
        if self.is_there.get() {
            return Ok(true);
        }
        let version = self.kv.get(SCHEMA_KEY)?.as_f64();
        if version.is_some_and(|version| version >= SCHEMA_VERSION) {
            self.is_there.set(true);
        } else if !rows(&self.sql, EXISTS, Vec::new())?.is_empty() {
            // Of a version that did not say so.
            self.create()?;
        }
        Ok(self.is_there.get())
    }

    fn create(&self) -> Result<(), StoreError> {
        rows(&self.sql, CREATE, Vec::new())?;
        self.kv
            .put(SCHEMA_KEY, &JsValue::from_f64(SCHEMA_VERSION))?;
        self.is_there.set(true);
        Ok(())
    }

    fn run(&self, statement: &str, values: Vec<SqlStorageValue>) -> Result<Vec<Row>, StoreError> {
        if !self.is_there()? {
            return Ok(Vec::new());
        }
        rows(&self.sql, statement, values)
    }
}

impl ServerStore for SqlServerStore {
    fn list(&self) -> Result<Vec<Result<ServerRow, DamagedRow>>, StoreError> {
        let rows = self.run(LIST, Vec::new())?;
        Ok(rows.into_iter().map(decode).collect())
    }

    fn get(&self, id: &str) -> Result<Option<Result<ServerRow, DamagedRow>>, StoreError> {
        let rows = self.run(GET, vec![text(id)])?;
        Ok(rows.into_iter().next().map(decode))
    }

    fn put(&self, row: &ServerRow) -> Result<(), StoreError> {
        if !self.is_there()? {
            self.create()?;
        }
        let optional =
            |value: &Option<String>| value.as_deref().map_or(SqlStorageValue::Null, text);
        let values = vec![
            text(&row.id),
            text(&row.name),
            text(&row.server_url),
            text(&row.callback_url),
            optional(&row.client_id),
            optional(&row.auth_url),
            optional(&row.server_options),
        ];
        rows(&self.sql, PUT, values).map(drop)
    }

    fn set_options(&self, id: &str, options: &str) -> Result<(), StoreError> {
        self.run(SET_OPTIONS, vec![text(options), text(id)])
            .map(drop)
    }

    fn delete(&self, id: &str) -> Result<bool, StoreError> {
        Ok(!self.run(DELETE, vec![text(id)])?.is_empty())
    }

    fn rename(&self, from: &str, to: &str) -> Result<bool, StoreError> {
        Ok(!self.run(RENAME, vec![text(to), text(from)])?.is_empty())
    }
}

pub(super) fn text(value: &str) -> SqlStorageValue {
    SqlStorageValue::String(value.to_owned())
}

/// Runs one statement to its end. Only `raw` reports an error of a later row as an error; the
/// cursor's other readers throw through Wasm, which loses the instance.
pub(super) fn rows(
    sql: &SqlStorage,
    statement: &str,
    values: Vec<SqlStorageValue>,
) -> Result<Vec<Row>, StoreError> {
    let cursor = sql.exec(statement, values).map_err(refused)?;
    cursor
        .raw()
        .collect::<worker::Result<Vec<Row>>>()
        .map_err(refused)
}

pub(super) fn refused(error: worker::Error) -> StoreError {
    StoreError(match error {
        worker::Error::UnknownJsError { message, .. } => message,
        other => other.to_string(),
    })
}

fn decode(row: Row) -> Result<ServerRow, DamagedRow> {
    let mut columns = row.into_iter();
    let mut column = |name: &'static str| match columns.next() {
        Some(SqlStorageValue::String(value)) => Ok(Some(value)),
        Some(SqlStorageValue::Null) => Ok(None),
        _ => Err(format!("{name}: not text")),
    };
    let Ok(Some(id)) = column("id") else {
        return Err(DamagedRow {
            id: "(unreadable)".into(),
            reason: "id: not text".into(),
        });
    };
    let mut read = || -> Result<ServerRow, String> {
        let mut required =
            |name| column(name).and_then(|value| value.ok_or_else(|| format!("{name}: missing")));
        let (name, server_url) = (required("name")?, required("server_url")?);
        let callback_url = required("callback_url")?;
        let (client_id, auth_url) = (column("client_id")?, column("auth_url")?);
        let server_options = column("server_options")?;
        Ok(ServerRow {
            id: id.clone(),
            name,
            server_url,
            callback_url,
            client_id,
            auth_url,
            server_options,
        })
    };
    read().map_err(|reason| DamagedRow {
        id: id.clone(),
        reason,
    })
}

/// The synchronous key-value store of an object with `SQLite` storage, which `worker` lacks.
pub(crate) struct KeyValue(SyncKv);

impl KeyValue {
    pub(crate) fn of(storage: &Storage) -> Self {
        let storage: StorageExt = JsValue::from(storage.as_raw()).unchecked_into();
        Self(storage.kv())
    }

    /// `undefined` when the key is not there.
    pub(crate) fn get(&self, key: &str) -> Result<JsValue, StoreError> {
        self.0.get(key).map_err(thrown)
    }

    pub(crate) fn put(&self, key: &str, value: &JsValue) -> Result<(), StoreError> {
        self.0.put(key, value).map_err(thrown)
    }

    pub(crate) fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.0.delete(key).map(drop).map_err(thrown)
    }
}

/// Values are stored as JavaScript values, not as text: so does the TypeScript package.
#[async_trait(?Send)]
impl KeyValueStore for KeyValue {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let value = self.get(key)?;
        if value.is_undefined() {
            return Ok(None);
        }
        let text = js_sys::JSON::stringify(&value).map_err(thrown)?;
        Ok(text.as_string())
    }

    async fn put(&self, key: &str, json: &str) -> Result<(), StoreError> {
        self.put(key, &js_sys::JSON::parse(json).map_err(thrown)?)
    }

    async fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        keys.iter()
            .try_for_each(|key| self.0.delete(key).map(drop).map_err(thrown))
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let options = js_sys::Object::new();
        js_sys::Reflect::set(&options, &"prefix".into(), &prefix.into()).map_err(thrown)?;
        let entries = self.0.list(&options).map_err(thrown)?;
        let entries = js_sys::try_iter(&entries).map_err(thrown)?;
        // Read to its end at once: no other statement may come between.
        let mut keys = Vec::new();
        for entry in entries.into_iter().flatten() {
            let entry = js_sys::Array::from(&entry.map_err(thrown)?);
            keys.extend(entry.get(0).as_string());
        }
        Ok(keys)
    }
}

fn thrown(value: JsValue) -> StoreError {
    refused(worker::Error::from(value))
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(extends = js_sys::Object)]
    type StorageExt;
    #[wasm_bindgen(method, getter)]
    fn kv(this: &StorageExt) -> SyncKv;

    #[wasm_bindgen(extends = js_sys::Object)]
    type SyncKv;
    #[wasm_bindgen(method, catch)]
    fn get(this: &SyncKv, key: &str) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn put(this: &SyncKv, key: &str, value: &JsValue) -> Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn delete(this: &SyncKv, key: &str) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn list(this: &SyncKv, options: &js_sys::Object) -> Result<JsValue, JsValue>;
}
