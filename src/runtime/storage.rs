//! The object's storage: the table of servers, and the synchronous key-value store.

use wasm_bindgen::prelude::*;
use worker::{SqlStorage, SqlStorageValue, Storage};

use crate::ports::{DamagedRow, ServerRow, ServerStore, StoreError};

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
const DELETE: &str = "DELETE FROM cf_agents_mcp_servers WHERE id = ? RETURNING id";

type Row = Vec<SqlStorageValue>;

/// Creates the table, once in the life of an object.
///
/// # Errors
/// Storage errors.
pub(crate) fn prepare_server_table(storage: &Storage) -> Result<(), StoreError> {
    let kv = KeyValue::of(storage);
    if kv
        .get(SCHEMA_KEY)?
        .as_f64()
        .is_some_and(|version| version >= SCHEMA_VERSION)
    {
        return Ok(());
    }
    rows(&storage.sql(), CREATE, Vec::new())?;
    kv.put(SCHEMA_KEY, &JsValue::from_f64(SCHEMA_VERSION))
}

pub(super) struct SqlServerStore {
    sql: SqlStorage,
}

impl SqlServerStore {
    pub(super) fn new(storage: &Storage) -> Self {
        Self { sql: storage.sql() }
    }
}

impl ServerStore for SqlServerStore {
    fn list(&self) -> Result<Vec<Result<ServerRow, DamagedRow>>, StoreError> {
        Ok(rows(&self.sql, LIST, Vec::new())?
            .into_iter()
            .map(decode)
            .collect())
    }

    fn get(&self, id: &str) -> Result<Option<Result<ServerRow, DamagedRow>>, StoreError> {
        Ok(rows(&self.sql, GET, vec![text(id)])?
            .into_iter()
            .next()
            .map(decode))
    }

    fn put(&self, row: &ServerRow) -> Result<(), StoreError> {
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
        rows(&self.sql, SET_OPTIONS, vec![text(options), text(id)]).map(drop)
    }

    fn delete(&self, id: &str) -> Result<bool, StoreError> {
        Ok(!rows(&self.sql, DELETE, vec![text(id)])?.is_empty())
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

fn refused(error: worker::Error) -> StoreError {
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
}
