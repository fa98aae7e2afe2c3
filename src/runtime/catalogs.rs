//! The table of catalogues. It is made when the first one is stored.

use std::cell::Cell;

use worker::{SqlStorage, SqlStorageValue, Storage};

use super::storage::{rows, text};
use crate::ports::{CatalogHead, CatalogRow, CatalogStore, StoreError};

/// Of how the columns are written. A row of another version is not read.
const FORMAT: i64 = 1;

// The items come last: reading what stands before them leaves their pages alone.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS workers_agents_catalogs (
    server_id TEXT PRIMARY KEY NOT NULL,
    format INTEGER NOT NULL,
    server_url TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    loaded_at TEXT NOT NULL,
    counts TEXT NOT NULL,
    item_index TEXT NOT NULL,
    items BLOB NOT NULL
) WITHOUT ROWID";
const EXISTS: &str = "SELECT 1 FROM sqlite_master WHERE name = 'workers_agents_catalogs'";
const HEADS: &str = "SELECT server_id, server_url, fingerprint, loaded_at, counts
    FROM workers_agents_catalogs WHERE format = ?";
const GET: &str = "SELECT server_id, server_url, fingerprint, loaded_at, counts, item_index, items
    FROM workers_agents_catalogs WHERE server_id = ? AND format = ?";
const PUT: &str = "INSERT OR REPLACE INTO workers_agents_catalogs
    (server_id, format, server_url, fingerprint, loaded_at, counts, item_index, items)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
const DELETE: &str = "DELETE FROM workers_agents_catalogs WHERE server_id = ?";
const RENAME: &str =
    "UPDATE OR REPLACE workers_agents_catalogs SET server_id = ? WHERE server_id = ?";

pub(super) struct SqlCatalogStore {
    sql: SqlStorage,
    is_there: Cell<bool>,
}

impl SqlCatalogStore {
    pub(super) fn new(storage: &Storage) -> Self {
        Self {
            sql: storage.sql(),
            is_there: Cell::new(false),
        }
    }

    fn run(
        &self,
        statement: &str,
        values: Vec<SqlStorageValue>,
    ) -> Result<Vec<Vec<SqlStorageValue>>, StoreError> {
        if !self.is_there.get() {
            if rows(&self.sql, EXISTS, Vec::new())?.is_empty() {
                return Ok(Vec::new());
            }
            self.is_there.set(true);
        }
        rows(&self.sql, statement, values)
    }
}

impl CatalogStore for SqlCatalogStore {
    fn heads(&self) -> Result<Vec<CatalogHead>, StoreError> {
        let rows = self.run(HEADS, vec![SqlStorageValue::Integer(FORMAT)])?;
        let heads = rows.into_iter().map(|row| head(&mut row.into_iter()));
        Ok(heads.flatten().collect())
    }

    fn get(&self, server_id: &str) -> Result<Option<CatalogRow>, StoreError> {
        let values = vec![text(server_id), SqlStorageValue::Integer(FORMAT)];
        let rows = self.run(GET, values)?;
        Ok(rows.into_iter().next().and_then(decode))
    }

    fn put(&self, row: &CatalogRow) -> Result<(), StoreError> {
        if !self.is_there.replace(true) {
            rows(&self.sql, CREATE, Vec::new()).inspect_err(|_| self.is_there.set(false))?;
        }
        let head = &row.head;
        let counts: Vec<String> = head.counts.iter().map(usize::to_string).collect();
        let values = vec![
            text(&head.server_id),
            SqlStorageValue::Integer(FORMAT),
            text(&head.server_url),
            text(&head.fingerprint),
            text(&head.loaded_at.to_string()),
            text(&counts.join(",")),
            text(&row.index),
            SqlStorageValue::Blob(row.items.clone()),
        ];
        rows(&self.sql, PUT, values).map(drop)
    }

    fn delete(&self, server_id: &str) -> Result<(), StoreError> {
        self.run(DELETE, vec![text(server_id)]).map(drop)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.run(RENAME, vec![text(to), text(from)]).map(drop)
    }
}

type Columns = std::vec::IntoIter<SqlStorageValue>;

fn column(columns: &mut Columns) -> Option<String> {
    match columns.next()? {
        SqlStorageValue::String(text) => Some(text),
        _ => None,
    }
}

fn head(columns: &mut Columns) -> Option<CatalogHead> {
    let (server_id, server_url) = (column(columns)?, column(columns)?);
    let fingerprint = column(columns)?;
    // As a text: integers beyond 2^53 come back wrong.
    let loaded_at = column(columns)?.parse().ok()?;
    let counts = column(columns)?;
    let mut counts = counts.split(',').map(|count| count.parse().ok());
    let mut count = || counts.next().flatten();
    Some(CatalogHead {
        server_id,
        server_url,
        fingerprint,
        loaded_at,
        counts: [count()?, count()?, count()?, count()?],
    })
}

fn decode(row: Vec<SqlStorageValue>) -> Option<CatalogRow> {
    let columns = &mut row.into_iter();
    Some(CatalogRow {
        head: head(columns)?,
        index: column(columns)?,
        items: match columns.next()? {
            SqlStorageValue::Blob(items) => items,
            _ => return None,
        },
    })
}
