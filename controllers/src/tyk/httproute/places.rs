//! Which Tyks an annotation may lead to. Anybody who may write a route may write its annotation, so a context in it is a
//! claim: it is followed while a GatewayClass of this installation names the context, or where the record says that one
//! did when the context led to the same Tyk. The record is a ConfigMap in the operator's namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use reconcile_kit::{ErrorClass, error::classify};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::tyk::{
    client::{TykError, TykErrorClass},
    objects::{Key, hex},
    sync::{Contexts, Secrets},
    verdict::{Connection, Mode},
};

/// Field manager of the record.
const MANAGER: &str = "routewright-tyk-places";
/// The key of the ConfigMap that holds the record: a line for each place.
const KEY: &str = "places";
/// The most places that are recorded.
const MOST: usize = 256;
/// Before the record is read again for a context that it does not name, or after it could not be read or written.
const AGAIN: Duration = Duration::from_secs(60);
/// Writes that meet another one's are tried so often.
const TRIES: usize = 3;

/// The name of the record of an installation.
pub fn record_name(instance: &str) -> String {
    format!("{instance}-tyk-places")
}

/// Why a context is not followed, as events of a route may say it: what exists in other namespaces is not told.
const UNNAMED: &str = "no GatewayClass of this operator names it, and the operator has no record that one did; let a \
                       GatewayClass name it";
const ELSEWHERE: &str = "no GatewayClass of this operator names it now, and it does not lead to the Tyk that it led to \
                         when one did; let a GatewayClass name it";
const UNUSABLE: &str = "it cannot be used: it or its Secret does not exist, or a value is missing (a Secret of another \
                        namespace counts only while a GatewayClass of this operator names the OperatorContext)";
const UNREAD: &str = "the API server does not answer for it";

/// What contexts led to while a GatewayClass of this installation named them.
#[async_trait]
pub trait Record: Send + Sync + 'static {
    /// The Tyks that a context led to, each as [`whole`] names it; or why that is not known.
    async fn places(&self, context: &Key) -> Result<BTreeSet<String>, String>;

    /// Takes down what a context leads to, before a route names it. A record that cannot be written costs only that the
    /// context is not followed once no class names it, so that a failure is logged and holds nothing up.
    async fn add(&self, connection: &Connection);
}

/// Digest of a Tyk's URL, organisation and kind: all of SHA-256, so that no second address with it can be made up.
pub fn whole(connection: &Connection) -> String {
    let (url, org) = connection.tyk();
    let mode = match connection.mode {
        Mode::OpenSource => "ce",
        Mode::Dashboard => "pro",
    };
    let mut digest = Sha256::new();
    for part in [mode, url, org] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    hex(digest.finalize().iter())
}

/// Why a context is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Astray {
    /// No class names it, and none is known to have done so.
    Unnamed,
    /// No class names it, and it leads to another Tyk than when one did.
    Elsewhere,
    /// No class names it, and what earlier ones named is not known.
    Unrecorded(String),
    /// It leads nowhere, or could not be read.
    Unusable(TykError),
}

impl Astray {
    /// For the author of a route. The same whether or not a class names the context by now: the class says what is wrong
    /// with it, to those who may read classes.
    pub fn brief(self, context: &Key) -> TykError {
        match self {
            Self::Unusable(error) => {
                debug!(%context, %error, "an OperatorContext cannot be used");
                let why = match error.class {
                    TykErrorClass::NoConnection => UNUSABLE,
                    _ => UNREAD,
                };
                TykError::new(error.class, why)
            }
            other => other.detailed(),
        }
    }

    /// For an administrator.
    pub fn detailed(self) -> TykError {
        let none = |why: &str| TykError::new(TykErrorClass::NoConnection, why);
        match self {
            Self::Unnamed => none(UNNAMED),
            Self::Elsewhere => none(ELSEWHERE),
            Self::Unrecorded(why) => none(&format!(
                "no GatewayClass of this operator names it, and the record of earlier ones cannot be read: {why}"
            )),
            Self::Unusable(error) => error,
        }
    }
}

/// Where a context leads, as far as it may be followed. `named`: a GatewayClass of this installation names it now.
///
/// # Errors
/// It may not be followed, leads nowhere, or could not be asked.
pub async fn lead(
    contexts: &dyn Contexts,
    record: &dyn Record,
    named: bool,
    context: &Key,
) -> Result<Arc<Connection>, Astray> {
    if named {
        let found = contexts.connection(context, Secrets::Anywhere).await;
        return found.map_err(Astray::Unusable);
    }
    let places = record.places(context).await.map_err(Astray::Unrecorded)?;
    if places.is_empty() {
        return Err(Astray::Unnamed);
    }
    let found = contexts.connection(context, Secrets::OwnNamespace).await;
    let found = found.map_err(Astray::Unusable)?;
    match places.contains(&whole(&found)) {
        true => Ok(found),
        false => Err(Astray::Elsewhere),
    }
}

type Places = BTreeMap<Key, BTreeSet<String>>;

/// A record that lives as long as the process.
#[derive(Clone, Debug, Default)]
pub struct InMemory(Arc<Mutex<Places>>);

#[async_trait]
impl Record for InMemory {
    async fn places(&self, context: &Key) -> Result<BTreeSet<String>, String> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(places.get(context).cloned().unwrap_or_default())
    }

    async fn add(&self, connection: &Connection) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = places.entry(connection.context.clone()).or_default();
        of.insert(whole(connection));
    }
}

/// The record in a ConfigMap.
pub struct KubeRecord {
    client: Client,
    key: Key,
    known: tokio::sync::Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Of the ConfigMap as it was read or written last; `None` if there was none.
    version: Option<String>,
    places: Places,
    read: Option<Instant>,
    failed: Option<(Instant, String)>,
}

impl KubeRecord {
    /// In this ConfigMap.
    pub fn new(client: Client, key: Key) -> Self {
        Self {
            client,
            key,
            known: tokio::sync::Mutex::default(),
        }
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.key.namespace)
    }

    fn failed(&self, known: &mut Known, error: &kube::Error) -> String {
        let why = format!("ConfigMap {}: {}", self.key, classify(error).1);
        known.failed = Some((Instant::now(), why.clone()));
        why
    }

    /// Reads it, unless that failed a moment ago.
    async fn read(&self, known: &mut Known) -> Result<(), String> {
        if let Some((at, why)) = &known.failed
            && at.elapsed() < AGAIN
        {
            return Err(why.clone());
        }
        let found = match self.api().get_opt(&self.key.name).await {
            Ok(found) => found,
            Err(error) => return Err(self.failed(known, &error)),
        };
        known.failed = None;
        known.read = Some(Instant::now());
        known.version = found
            .as_ref()
            .and_then(|map| map.metadata.resource_version.clone());
        let data = found.and_then(|map| map.data).unwrap_or_default();
        known.places = data.get(KEY).map(|text| parse(text)).unwrap_or_default();
        Ok(())
    }

    async fn write(&self, known: &mut Known, places: Places) -> Result<(), kube::Error> {
        let data = json!({ KEY: text(&places) });
        let written = match &known.version {
            None => {
                let map = json!({
                    "metadata": {
                        "name": self.key.name, "namespace": self.key.namespace,
                        "labels": {"app.kubernetes.io/managed-by": crate::app::MANAGED_BY},
                    },
                    "data": data,
                });
                let map = serde_json::from_value(map).map_err(kube::Error::SerdeError)?;
                let params = PostParams {
                    field_manager: Some(MANAGER.to_owned()),
                    ..PostParams::default()
                };
                self.api().create(&params, &map).await?
            }
            Some(version) => {
                let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
                let params = PatchParams {
                    field_manager: Some(MANAGER.to_owned()),
                    ..PatchParams::default()
                };
                self.api()
                    .patch(&self.key.name, &params, &Patch::Merge(patch))
                    .await?
            }
        };
        known.version = written.metadata.resource_version;
        known.places = places;
        Ok(())
    }
}

#[async_trait]
impl Record for KubeRecord {
    async fn places(&self, context: &Key) -> Result<BTreeSet<String>, String> {
        let mut known = self.known.lock().await;
        let stale = known.read.is_none_or(|at| at.elapsed() >= AGAIN);
        if stale && !known.places.contains_key(context) {
            self.read(&mut known).await?;
        }
        Ok(known.places.get(context).cloned().unwrap_or_default())
    }

    async fn add(&self, connection: &Connection) {
        let (context, place) = (&connection.context, whole(connection));
        let mut known = self.known.lock().await;
        let has = |known: &Known| {
            let of = known.places.get(context);
            of.is_some_and(|of| of.contains(&place))
        };
        for _ in 0..TRIES {
            if has(&known) {
                return;
            }
            // What was read is what a write builds on.
            if (known.read.is_none() || known.failed.is_some()) && self.read(&mut known).await.is_err() {
                return;
            }
            if has(&known) {
                return;
            }
            let mut places = known.places.clone();
            if places.values().map(BTreeSet::len).sum::<usize>() >= MOST {
                warn!(record = %self.key, "the record of OperatorContexts is full: delete the lines of those that are out of use");
                known.failed = Some((Instant::now(), format!("ConfigMap {} is full", self.key)));
                return;
            }
            places.entry(context.clone()).or_default().insert(place.clone());
            let Err(error) = self.write(&mut known, places).await else {
                return;
            };
            match classify(&error).0 {
                // Another client has written or deleted it.
                ErrorClass::Conflict | ErrorClass::NotFound => known.read = None,
                _ => {
                    let why = self.failed(&mut known, &error);
                    warn!(%context, %why, "it cannot be recorded where an OperatorContext leads: its APIs cannot be deleted once no GatewayClass names it");
                    return;
                }
            }
        }
    }
}

/// Reads the lines of a record and skips all others.
fn parse(text: &str) -> Places {
    let mut places = Places::new();
    for line in text.lines() {
        let Some((context, digest)) = line.trim().split_once('@') else {
            continue;
        };
        let Some((namespace, name)) = context.split_once('/') else {
            continue;
        };
        let of = places.entry(Key::new(namespace, name)).or_default();
        of.insert(digest.to_owned());
    }
    places
}

fn text(places: &Places) -> String {
    let mut text = String::new();
    for (context, digests) in places {
        for digest in digests {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{context}@{digest}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tyk::objects::Fingerprint;

    fn connection(url: &str, mode: Mode) -> Connection {
        Connection {
            url: url.into(),
            org: "o".into(),
            mode,
            context: Key::new("tyk", "main"),
            fingerprint: Fingerprint("f".into()),
        }
    }

    /// A context that leads somewhere, with a Secret of another namespace or of its own.
    struct Leading(Connection, bool);

    #[async_trait]
    impl Contexts for Leading {
        async fn connection(&self, _: &Key, secrets: Secrets) -> Result<Arc<Connection>, TykError> {
            match (self.1, secrets) {
                (true, Secrets::OwnNamespace) => Err(TykError::new(
                    TykErrorClass::NoConnection,
                    "the Secret tyk/credential of another namespace",
                )),
                _ => Ok(Arc::new(self.0.clone())),
            }
        }
    }

    #[tokio::test]
    async fn a_context_is_followed_while_a_class_names_it_or_where_one_did() {
        let here = connection("http://tyk", Mode::OpenSource);
        let record = InMemory::default();
        let ask = async |connection: &Connection, far: bool, named: bool| {
            let leading = Leading(connection.clone(), far);
            let found = lead(&leading, &record, named, &connection.context).await;
            found
                .map(drop)
                .map_err(|astray| astray.brief(&connection.context).message)
        };
        // before anything is recorded, only a class leads there
        assert_eq!(ask(&here, true, true).await, Ok(()));
        assert_eq!(ask(&here, false, false).await, Err(UNNAMED.to_owned()));
        // then what was recorded, and nothing else
        record.add(&here).await;
        assert_eq!(ask(&here, false, false).await, Ok(()));
        for other in [
            connection("http://evil", Mode::OpenSource),
            connection("http://tyk", Mode::Dashboard),
        ] {
            assert_eq!(ask(&other, false, false).await, Err(ELSEWHERE.to_owned()));
        }
        // and a Secret of another namespace is not read, nor told of
        assert_eq!(ask(&here, true, false).await, Err(UNUSABLE.to_owned()));
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_garbage_is_passed_over() {
        let mut places = Places::new();
        for (context, digest) in [("b", "02"), ("a", "01"), ("a", "00")] {
            let of = places.entry(Key::new("tyk", context)).or_default();
            of.insert(digest.to_owned());
        }
        let written = text(&places);
        assert_eq!(written, "tyk/a@00\ntyk/a@01\ntyk/b@02\n");
        assert_eq!(parse(&format!("\nx\n@\ny@z\n  {written}")), places);
    }
}
