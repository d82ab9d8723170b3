//! Looks an object up in a cache and tells apart what "not in the cache" means: certainly absent, not watched, not
//! readable, not permitted, or not known yet. Only certain absence may let anything go. No decision.

use std::{fmt, sync::Arc};

use reconcile_kit::{
    ApiKind, ErrorClass,
    layers::api_presence::{Presence, PresenceSnapshot},
    runtime::{Handle, Scope, hub::Cached},
};

use super::plan::NotReady;

/// Why an object cannot be seen although it may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// Its namespace is not among those that are watched.
    NotWatched {
        /// The namespace.
        namespace: String,
    },
    /// It exists and does not fit its type.
    Undecodable {
        /// Where and how it does not fit.
        error: String,
    },
    /// The API server refuses to list its kind.
    Forbidden {
        /// The API server's message.
        message: String,
    },
}

impl fmt::Display for Unseen {
    /// What is wrong and what to do, after the name of the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWatched { namespace } => write!(
                f,
                "namespace {namespace} is not watched: add it to --watch-namespaces (chart value watchNamespaces)"
            ),
            Self::Undecodable { error } => {
                write!(
                    f,
                    "exists and cannot be read, because a field does not fit: {error}; correct it"
                )
            }
            Self::Forbidden { message } => write!(f, "cannot be read, because a right is missing: {message}"),
        }
    }
}

/// What a cache says about an object.
#[derive(Clone, Debug)]
pub enum Found<K> {
    /// The API server does not serve its kind.
    NotServed,
    /// Certainly absent.
    Missing,
    /// It may exist.
    Unseen(Unseen),
    /// This one.
    Object(Arc<K>),
}

/// The caches of the installation as lookups see them.
#[derive(Clone)]
pub struct View {
    /// Namespaces that are watched.
    pub scope: Scope,
    /// Which kinds are served.
    pub presence: Arc<dyn PresenceSnapshot>,
}

impl View {
    /// Why nothing of a namespace can be seen in this cache. `Ok(None)`: the cache is complete.
    ///
    /// # Errors
    /// It is not known yet.
    pub fn blind_spot<K: Cached>(
        &self,
        kind: &ApiKind,
        handle: &Handle<K>,
        namespace: &str,
    ) -> Result<Option<Unseen>, NotReady> {
        if let Scope::Namespaces(watched) = &self.scope
            && !watched.iter().any(|one| one == namespace)
        {
            return Ok(Some(Unseen::NotWatched {
                namespace: namespace.to_owned(),
            }));
        }
        if handle.is_ready() {
            return Ok(None);
        }
        match handle.problem() {
            Some(problem) if problem.class == ErrorClass::Forbidden => Ok(Some(Unseen::Forbidden {
                message: problem.message,
            })),
            _ => Err(NotReady(kind.kind)),
        }
    }

    /// Looks one object up.
    ///
    /// # Errors
    /// It is not known yet.
    pub fn find<K: Cached>(
        &self,
        kind: &ApiKind,
        handle: &Handle<K>,
        namespace: &str,
        name: &str,
    ) -> Result<Found<K>, NotReady> {
        match self.presence.presence(kind) {
            Presence::Absent => return Ok(Found::NotServed),
            Presence::Unknown => return Err(NotReady(kind.kind)),
            Presence::Served => {}
        }
        if let Some(unseen) = self.blind_spot(kind, handle, namespace)? {
            return Ok(Found::Unseen(unseen));
        }
        // An object that fitted its type before is still known as it was then.
        if let Some(object) = handle.store().get(namespace, name) {
            return Ok(Found::Object(object));
        }
        if !handle.is_undecodable(namespace, name) {
            return Ok(Found::Missing);
        }
        let of = |one: &reconcile_kit::runtime::hub::Undecodable| {
            one.name == name && one.namespace.as_deref() == Some(namespace)
        };
        let error = handle.undecodable().into_iter().find(of).map(|one| one.error);
        Ok(Found::Unseen(Unseen::Undecodable {
            error: error.unwrap_or_default(),
        }))
    }
}
