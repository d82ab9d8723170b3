//! Keeps Tyk in step: one actor per connection owns batching, order and reloads; a reconcile hands in what should stand
//! and awaits what came of it. Contract: design page on Tyk, §4.
//!
//! Here: what is handed in and what comes back. It knows ids, documents and owners; what a route, a rule or a parent is,
//! it does not know. Nothing here writes to Kubernetes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;

use super::{
    client::{Bundle, TykApi, TykError},
    objects::Key,
    translate::{Owner, TykApi as Api},
    verdict::{CertificateUse, Connection},
};

mod actor;
mod actors;
mod batch;
mod book;
mod line;
mod marks;
mod orphans;
mod shown;
mod sweep;

pub use actors::{Actors, Settings};

/// What one route wants of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The route, its uid and the cluster: stamped on every document, asked of every document that is touched.
    pub owner: Owner,
    /// These should stand like this (not stamped yet).
    pub apis: Vec<Arc<Api>>,
    /// These should not stand. Ids that are in `apis` too are not removed.
    pub remove: Vec<String>,
    /// To be in the certificate store before the APIs that name them.
    pub certificates: Vec<CertificateUse>,
    /// The route's memory names all of `apis`, and its status says that they stand as the present generation wants them:
    /// what this process has not seen yet is taken for written and looked at later, at a bounded rate. A restart is not
    /// N writes.
    pub trusted: bool,
}

/// Why one document is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Another owner's document (or one that nobody signed) has the id: it was not touched.
    Foreign {
        /// The owner that it names, for people.
        owner: String,
    },
    /// Tyk took it under another listen path, because another API has this one.
    Renamed {
        /// The path that it serves now.
        path: String,
    },
    /// Tyk accepted it and does not serve it.
    NotLoaded,
    /// The call failed.
    Failed(TykError),
}

impl Trouble {
    /// Its name in traces.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Foreign { .. } => "foreign",
            Self::Renamed { .. } => "renamed",
            Self::NotLoaded => "not_loaded",
            Self::Failed(error) => error.class.label(),
        }
    }
}

/// What came of a [`Job`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Of `apis`: those that do not stand as wanted, by id. What is not named stands.
    pub troubled: BTreeMap<String, Trouble>,
    /// Of `remove`: those that may still stand, by id. What is not named is gone.
    pub remaining: BTreeMap<String, Trouble>,
    /// Certificates that are not in the store, by Tyk's id. The APIs that name them were written all the same.
    pub certificates: BTreeMap<String, TykError>,
    /// Of `apis`: those that Tyk had lost or held otherwise than they were written last, and that stand again. Named once,
    /// to the first job that finds them mended.
    pub mended: BTreeSet<String>,
}

impl Done {
    /// The first thing that is the matter, by name.
    pub fn trouble(&self) -> Option<&'static str> {
        let apis = self.troubled.values().chain(self.remaining.values());
        let certificates = self.certificates.values().map(|error| error.class.label());
        apis.map(Trouble::label).chain(certificates).next()
    }

    /// Everything stands, and nothing else does.
    pub fn is_clean(&self) -> bool {
        self.troubled.is_empty() && self.remaining.is_empty() && self.certificates.is_empty()
    }
}

/// How the actors reach the world. A seam: the operator reads Kubernetes, a test gives what it likes.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// A client for a connection. Asked again when the connection's fingerprint changes, and after `Denied`.
    async fn connect(&self, connection: &Connection) -> Result<Arc<dyn TykApi>, TykError>;

    /// The content of a TLS Secret, if it still is the one that was decided about.
    async fn bundle(&self, used: &CertificateUse) -> Result<Bundle, TykError>;
}

/// What an OperatorContext stands for today. Asked for what a route remembers there and no Gateway leads to any more: the
/// class, the Gateway or the context may be gone. A seam, like [`Connector`]; the operator reads context and Secret.
#[async_trait]
pub trait Contexts: Send + Sync + 'static {
    /// Its connection, as the model would read it for a class, if its Secret is one of `secrets`; [`TykErrorClass::NoConnection`] when there is none (the
    /// message says what is missing), another class when it could not be asked.
    ///
    /// [`TykErrorClass::NoConnection`]: super::client::TykErrorClass::NoConnection
    async fn connection(&self, context: &Key, secrets: Secrets) -> Result<Arc<Connection>, TykError>;
}

/// Which Secret a context may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    /// Any: a GatewayClass names the context, so its author is responsible.
    Anywhere,
    /// One of the context's own namespace: anybody may have written the context.
    OwnNamespace,
}

/// Told that a document of a route is not any more as it was written (lost, edited, renamed): hand in its job again.
pub type Drifted = Arc<dyn Fn(&Key) + Send + Sync>;

/// Which routes there are. A seam: the operator asks its caches, a test says what it likes.
pub trait Routes: Send + Sync + 'static {
    /// The cluster and the controllerName whose documents are ours; `None` while it is not known.
    fn installation(&self) -> Option<(String, String)>;

    /// Whether there is an HTTPRoute of this name, whosever it is; `None` while not all of them are known.
    fn exists(&self, route: &Key) -> Option<bool>;

    /// Whether a GatewayClass of this installation leads to this Tyk now. Another Tyk is not swept, and no route learns of
    /// its documents: its context may have come out of an annotation.
    fn leads_to(&self, connection: &Connection) -> bool;
}

/// What a reconcile sees of the actors. A seam, so that the controller can be tested alone.
#[async_trait]
pub trait Syncing: Send + Sync + 'static {
    /// Makes one connection agree with a job. Dropping the future cancels nothing that was sent already; handing in the
    /// same job again is safe and, when nothing changed, costs no request.
    async fn submit(&self, connection: &Arc<Connection>, job: Job) -> Done;

    /// Whether anybody answers there as a Tyk does. Asked before a route remembers its first ids at a place: what was never
    /// reached, because its URL was mistyped, should not be looked for for ever. Costs a request only while it is not known;
    /// a route that is told `Err` is told when it is another.
    async fn reach(&self, connection: &Arc<Connection>, route: &Key) -> Result<(), TykError> {
        let _ = (connection, route);
        Ok(())
    }

    /// The route is gone: nothing of it is looked at any more, and what it still has in any Tyk is removed in the
    /// background, tried again until it is gone. A document of another owner stays. A job that names one of these ids,
    /// because the route came back, has it from the moment it is handed in: it is not removed after that.
    fn forget(&self, route: &Key);

    /// Ids that the route has, for all that is known, with the way to their Tyk: more than it remembers if somebody took
    /// its memory away. Costs no request.
    fn known(&self, route: &Key) -> Vec<(Arc<Connection>, BTreeSet<String>)> {
        let _ = route;
        Vec::new()
    }

    /// Has a Tyk looked through for documents of routes that are gone, even if no route hands in a job: once per time that
    /// this process leads, by one list. Nothing is done before [`Syncing::ask`].
    fn sweep(&self, connection: &Arc<Connection>) {
        let _ = connection;
    }

    /// Says whom to ask which routes there are. Before that, nothing is swept.
    fn ask(&self, routes: Arc<dyn Routes>) {
        let _ = routes;
    }
}
