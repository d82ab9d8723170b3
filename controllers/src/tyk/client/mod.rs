//! Clients of Tyk: one trait, one implementation for the API of an open-source gateway (`gateway`) and one for Tyk
//! Dashboard (`dashboard`). Here: what both can do, what they answer, and how they fail.
//!
//! A client knows HTTP and nothing of routes: who may write what, in which order and how often is decided by `sync`.
//! Credentials and private keys never reach a message, a log line or `Debug`.

use std::fmt;

use async_trait::async_trait;
use serde_json::Value;

use super::{translate::Owner, verdict::Mode};

pub mod connect;
pub mod dashboard;
pub mod gateway;
pub mod http;

/// What an id stands for in Tyk's certificate store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// The private key is there too: only then can the certificate be served.
    pub has_private: bool,
}

/// Whose a document is, as far as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signed {
    /// This owner's.
    By(Owner),
    /// It has no owner of ours.
    Not,
    /// A list does not say; the document itself does.
    NotShown,
}

/// A document in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its owner.
    pub signed: Signed,
}

/// Certificate chain and private key as PEM, to be uploaded. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle(pub Vec<u8>);

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bundle(..)")
    }
}

/// Why a call to Tyk failed, as far as what comes next is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TykErrorClass {
    /// No answer: refused, reset, DNS, time-out. What a write did is not known.
    Unreachable,
    /// 5xx or an answer that is none of Tyk's: passes, mostly.
    Failing,
    /// 429, or another request for patience.
    Busy,
    /// The credential is not taken (401, 403 of the gateway's access check).
    Denied,
    /// Tyk will not take this document or certificate, now or later (400, 403, 409).
    Refused,
    /// No connection can be made: context, Secret, URL or certificate authority do not allow one.
    NoConnection,
    /// This process may not write any more: the lease is gone.
    Fenced,
}

impl TykErrorClass {
    /// Its name in traces.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Failing => "failing",
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::NoConnection => "no_connection",
            Self::Fenced => "fenced",
        }
    }
}

/// A failed call. The message is stable between tries and names the way out; it may stand in a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TykError {
    /// Decides what comes next.
    pub class: TykErrorClass,
    /// For people: what was asked of which place (method and path, no credential) and what was answered.
    pub message: String,
}

impl TykError {
    /// An error of `class`.
    pub fn new(class: TykErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }

    /// Whether the same call may succeed later though nothing of it changed.
    pub fn passes(&self) -> bool {
        matches!(
            self.class,
            TykErrorClass::Unreachable | TykErrorClass::Failing | TykErrorClass::Busy
        )
    }
}

impl fmt::Display for TykError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TykError {}

/// What both APIs of Tyk can do. Every call is one attempt of the operation: retries of 5xx, 429 and network errors with
/// jitter belong to the implementation, a bounded number within 30 s; a 4xx is never repeated.
#[async_trait]
pub trait TykApi: Send + Sync + 'static {
    /// Which of the two.
    fn mode(&self) -> Mode;

    /// The document as Tyk holds it; `None` if it holds none under this id. On the open-source gateway: what is *loaded*,
    /// so that a write shows after the next [`TykApi::reload`] only.
    async fn get(&self, id: &str) -> Result<Option<Value>, TykError>;

    /// Every document that there is, in one request. On the open-source gateway: what is loaded, with owners; the
    /// Dashboard lists ids alone.
    async fn list(&self) -> Result<Vec<Listed>, TykError>;

    /// Creates the document or replaces the one with its id. `exists`: whether a GET has just shown one (the Dashboard
    /// creates by POST and updates by PUT; the gateway does both by POST). After an ambiguous failure the implementation
    /// asks by id before it repeats a creation.
    async fn put(&self, id: &str, document: &Value, exists: bool) -> Result<(), TykError>;

    /// Removes it. `true`: it is known to be gone; `false`: accepted, gone after the next reload.
    async fn delete(&self, id: &str) -> Result<bool, TykError>;

    /// Makes what was written be served, and returns when it is. The Dashboard does so by itself: nothing is called.
    async fn reload(&self) -> Result<(), TykError>;

    /// Whether Tyk has loaded what it has stored, as far as it says so. Asked when it shows nothing under an id: a gateway
    /// that is starting answers before it has loaded its files.
    async fn ready(&self) -> bool {
        true
    }

    /// A certificate of the store; `None` if there is none under this id.
    async fn certificate(&self, id: &str) -> Result<Option<StoredCertificate>, TykError>;

    /// Uploads a certificate with its key; the id that Tyk gave it. A duplicate counts as success only if the stored one
    /// has its private key; one without is replaced.
    async fn upload(&self, id: &str, bundle: &Bundle) -> Result<String, TykError>;

    /// Uploads a certificate in place of the one under its id, whose chain is another: the id is that of the first
    /// certificate alone, and what is stored is not overwritten by an upload. What is served stays served meanwhile.
    async fn replace(&self, id: &str, bundle: &Bundle) -> Result<String, TykError>;
}
