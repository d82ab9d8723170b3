//! The phase of a connect-only GarageCluster: a handle for a Garage that runs elsewhere.
//!
//! Pure. Reading the Secret and asking the Admin API is done by the controller; what it found comes in here.

use std::collections::BTreeMap;
use std::time::Duration;

use routewright_crds::GarageCluster;

use super::admin::{AdminError, AdminErrorClass, ClusterHealth, Endpoint, Token, TokenError};

/// How often a handle is looked at, whatever its phase.
pub const HANDLE_INTERVAL: Duration = Duration::from_secs(60);
/// The key of the token's Secret when the spec names none.
pub const DEFAULT_TOKEN_KEY: &str = "admin-token";

/// What the spec of a handle says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandleSpec {
    /// spec.connectTo.adminApiEndpoint
    pub endpoint: Option<String>,
    /// spec.connectTo.adminTokenSecretRef
    pub token: Option<TokenRef>,
}

impl HandleSpec {
    /// The spec of `cluster`, if it is a handle: connectTo alone, without tiers.
    #[must_use]
    pub fn of(cluster: &GarageCluster) -> Option<Self> {
        let spec = &cluster.spec;
        let connect = spec.connect_to.as_ref()?;
        (spec.storage.is_none() && spec.gateway.is_none()).then(|| Self {
            endpoint: connect.admin_api_endpoint.clone(),
            token: connect.admin_token_secret_ref.as_ref().map(|r| TokenRef {
                name: r.name.clone(),
                key: r.key.clone(),
            }),
        })
    }
}

/// Where the token lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRef {
    /// Name of a Secret in the handle's namespace.
    pub name: String,
    /// Its key; [`DEFAULT_TOKEN_KEY`] when absent or empty.
    pub key: Option<String>,
}

impl TokenRef {
    /// The key that counts.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key
            .as_deref()
            .filter(|k| !k.is_empty())
            .unwrap_or(DEFAULT_TOKEN_KEY)
    }
}

/// Whether the handle can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlePhase {
    /// The Admin API answers and takes the token.
    Running,
    /// It cannot be used yet; the reason says why.
    Pending,
}

impl HandlePhase {
    /// The published spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Pending => "Pending",
        }
    }
}

/// Stable names of what makes a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HandleReason {
    /// The Admin API answers and takes the token.
    AdminAPIReachable,
    /// A field of the spec is missing or wrong.
    InvalidSpec,
    /// The GarageCluster that the handle refers to does not exist.
    ClusterNotFound,
    /// The Secret or its key does not exist.
    TokenNotFound,
    /// The Secret could not be read.
    TokenUnreadable,
    /// What the Secret holds is no token.
    InvalidToken,
    /// Garage does not take the token.
    Unauthorized,
    /// No usable answer.
    AdminAPIUnreachable,
    /// Something answers that is not Garage's Admin API v2.
    NotGarage,
}

impl HandleReason {
    /// Every reason, for tests and documentation.
    pub const ALL: [Self; 9] = [
        Self::AdminAPIReachable,
        Self::InvalidSpec,
        Self::ClusterNotFound,
        Self::TokenNotFound,
        Self::TokenUnreadable,
        Self::InvalidToken,
        Self::Unauthorized,
        Self::AdminAPIUnreachable,
        Self::NotGarage,
    ];

    /// The published spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AdminAPIReachable => "AdminAPIReachable",
            Self::InvalidSpec => "InvalidSpec",
            Self::ClusterNotFound => "ClusterNotFound",
            Self::TokenNotFound => "TokenNotFound",
            Self::TokenUnreadable => "TokenUnreadable",
            Self::InvalidToken => "InvalidToken",
            Self::Unauthorized => "Unauthorized",
            Self::AdminAPIUnreachable => "AdminAPIUnreachable",
            Self::NotGarage => "NotGarage",
        }
    }
}

/// Phase, reason and message of a handle, and when to look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleVerdict {
    /// status.phase
    pub phase: HandlePhase,
    /// Why.
    pub reason: HandleReason,
    /// For people; stable from probe to probe.
    pub message: String,
    /// Look again after this time even if nothing changes.
    pub retry: Duration,
}

impl HandleVerdict {
    /// Pending for this reason.
    #[must_use]
    pub fn pending(reason: HandleReason, message: String) -> Self {
        Self {
            phase: HandlePhase::Pending,
            reason,
            message,
            retry: HANDLE_INTERVAL,
        }
    }
}

/// What is behind the spec, once it is known to be complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleTarget {
    /// The Admin API.
    pub endpoint: Endpoint,
    /// Where its token lies.
    pub token: TokenRef,
}

/// Checks the spec of a handle.
///
/// # Errors
/// Pending/InvalidSpec, naming the field.
pub fn target(spec: &HandleSpec) -> Result<HandleTarget, HandleVerdict> {
    let invalid = |message: String| HandleVerdict::pending(HandleReason::InvalidSpec, message);
    let endpoint = spec
        .endpoint
        .as_deref()
        .filter(|e| !e.trim().is_empty())
        .ok_or_else(|| {
            invalid(
                "spec.connectTo.adminApiEndpoint: is needed, e.g. http://garage.example.com:3903; or name a \
                 GarageCluster of this namespace in spec.connectTo.clusterRef"
                    .to_owned(),
            )
        })?;
    let endpoint =
        Endpoint::parse(endpoint).map_err(|e| invalid(format!("spec.connectTo.adminApiEndpoint: {e}")))?;
    let token = spec.token.clone().filter(|t| !t.name.is_empty()).ok_or_else(|| {
        invalid(
            "spec.connectTo.adminTokenSecretRef: is needed; it names the Secret with the admin token"
                .to_owned(),
        )
    })?;
    Ok(HandleTarget { endpoint, token })
}

/// What reading the token's Secret came to.
#[derive(Clone, Debug)]
pub enum TokenState {
    /// There is no such Secret.
    SecretMissing,
    /// The Secret lacks the key.
    KeyMissing,
    /// The Secret could not be read: why, in words that hold no secret.
    Unreadable(String),
    /// What stands under the key is no token.
    Bad(TokenError),
    /// A token.
    Usable(Token),
}

/// Takes the token out of a Secret's data, `None` meaning that there is no such Secret.
#[must_use]
pub fn token_state<B: AsRef<[u8]>>(data: Option<&BTreeMap<String, B>>, reference: &TokenRef) -> TokenState {
    let Some(data) = data else {
        return TokenState::SecretMissing;
    };
    let Some(bytes) = data.get(reference.key()) else {
        return TokenState::KeyMissing;
    };
    match std::str::from_utf8(bytes.as_ref()) {
        Err(_) => TokenState::Bad(TokenError::NotVisibleAscii),
        Ok(text) => match Token::new(text) {
            Ok(token) => TokenState::Usable(token),
            Err(fault) => TokenState::Bad(fault),
        },
    }
}

/// The token of a target, if it can be used.
///
/// # Errors
/// Pending, naming the Secret and what is wrong with it.
pub fn usable(target: &HandleTarget, token: TokenState) -> Result<Token, HandleVerdict> {
    let (name, key) = (&target.token.name, target.token.key());
    let refuse = |reason, what: String| {
        Err(HandleVerdict::pending(
            reason,
            format!("spec.connectTo.adminTokenSecretRef: {what}"),
        ))
    };
    match token {
        TokenState::SecretMissing => refuse(
            HandleReason::TokenNotFound,
            format!("Secret {name} does not exist in this namespace"),
        ),
        TokenState::KeyMissing => refuse(
            HandleReason::TokenNotFound,
            format!("Secret {name} has no key {key}"),
        ),
        TokenState::Unreadable(why) => refuse(
            HandleReason::TokenUnreadable,
            format!("Secret {name} cannot be read: {why}"),
        ),
        TokenState::Bad(fault) => refuse(
            HandleReason::InvalidToken,
            format!("key {key} of Secret {name}: {fault}"),
        ),
        TokenState::Usable(token) => Ok(token),
    }
}

/// The phase of a handle whose Admin API was asked for its health.
#[must_use]
pub fn probed(endpoint: &Endpoint, probe: &Result<ClusterHealth, AdminError>) -> HandleVerdict {
    match probe {
        Ok(health) => HandleVerdict {
            phase: HandlePhase::Running,
            reason: HandleReason::AdminAPIReachable,
            message: reachable(endpoint, health),
            retry: HANDLE_INTERVAL,
        },
        Err(error) => HandleVerdict::pending(reason_of(error.class()), error.to_string()),
    }
}

/// The verdict about a handle whose token is accepted for reading buckets, and refused for the cluster's health: nothing
/// that a bucket needs is missing.
#[must_use]
pub fn probed_without_health(endpoint: &Endpoint) -> HandleVerdict {
    HandleVerdict {
        phase: HandlePhase::Running,
        reason: HandleReason::AdminAPIReachable,
        message: format!(
            "Garage Admin API {endpoint} answers; the scope of the token lacks GetClusterHealth, so the health of the \
             cluster is not known"
        ),
        retry: HANDLE_INTERVAL,
    }
}

fn reachable(endpoint: &Endpoint, health: &ClusterHealth) -> String {
    let state = match health.status.as_str() {
        "healthy" => return format!("Garage Admin API {endpoint} answers"),
        _ if health.partitions == 0 => "no layout has been applied, so no bucket can be made",
        "degraded" => "Garage calls its cluster degraded",
        "unavailable" => "Garage calls its cluster unavailable: some partitions have no quorum",
        // Not quoted: the endpoint is whatever the spec names.
        _ => "Garage calls its cluster neither healthy nor degraded nor unavailable",
    };
    format!("Garage Admin API {endpoint} answers, but {state}")
}

fn reason_of(class: AdminErrorClass) -> HandleReason {
    match class {
        AdminErrorClass::Unauthorized => HandleReason::Unauthorized,
        AdminErrorClass::Garbage
        | AdminErrorClass::TooLarge
        | AdminErrorClass::Redirect
        | AdminErrorClass::Invalid
        | AdminErrorClass::NotFound
        | AdminErrorClass::Conflict
        | AdminErrorClass::AliasTaken
        | AdminErrorClass::NotEmpty => HandleReason::NotGarage,
        AdminErrorClass::Unavailable
        | AdminErrorClass::Timeout
        | AdminErrorClass::Connect
        | AdminErrorClass::Fenced => HandleReason::AdminAPIUnreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garage::admin::Call;

    fn spec() -> HandleSpec {
        HandleSpec {
            endpoint: Some("http://garage.example.com:3903".into()),
            token: Some(TokenRef {
                name: "garage-admin".into(),
                key: None,
            }),
        }
    }

    fn health(status: &str, partitions: u64) -> Result<ClusterHealth, AdminError> {
        Ok(ClusterHealth {
            status: status.into(),
            partitions,
            partitions_quorum: partitions,
        })
    }

    fn failed(class: AdminErrorClass) -> Result<ClusterHealth, AdminError> {
        Err(AdminError::new(
            class,
            Call::GetClusterHealth,
            "http://garage.example.com:3903",
            "why",
        ))
    }

    #[test]
    fn a_spec_that_lacks_something_is_pending_and_names_the_field() {
        let endpoint = |text: &str| HandleSpec {
            endpoint: Some(text.into()),
            ..spec()
        };
        for (spec, says) in [
            (
                HandleSpec {
                    endpoint: None,
                    ..spec()
                },
                "spec.connectTo.adminApiEndpoint: is needed",
            ),
            (endpoint("  "), "spec.connectTo.adminApiEndpoint: is needed"),
            (endpoint("garage:3903:x"), "spec.connectTo.adminApiEndpoint: "),
            (endpoint("ftp://garage"), "must be http or https, not ftp"),
            (endpoint("http://u:p@garage"), "user or password"),
            (endpoint("http://garage/?token=x"), "query or fragment"),
            (
                HandleSpec {
                    token: None,
                    ..spec()
                },
                "spec.connectTo.adminTokenSecretRef: is needed",
            ),
        ] {
            let verdict = target(&spec).unwrap_err();
            assert_eq!(
                (verdict.phase, verdict.reason),
                (HandlePhase::Pending, HandleReason::InvalidSpec)
            );
            assert!(verdict.message.contains(says), "{}", verdict.message);
            assert!(!verdict.message.contains("u:p"), "{}", verdict.message);
        }
    }

    #[test]
    fn only_a_cluster_without_tiers_is_a_handle() {
        let cluster = |spec: serde_json::Value| -> GarageCluster {
            serde_json::from_value(serde_json::json!({
                "apiVersion": "garage.rajsingh.info/v1beta2", "kind": "GarageCluster",
                "metadata": { "name": "nas", "namespace": "team" }, "spec": spec,
            }))
            .unwrap()
        };
        let connect = serde_json::json!({
            "adminApiEndpoint": "http://garage.example.com:3903", "adminTokenSecretRef": { "name": "garage-admin" },
        });
        let handle = cluster(serde_json::json!({ "connectTo": connect }));
        assert_eq!(HandleSpec::of(&handle), Some(spec()));
        for other in [
            serde_json::json!({ "storage": {} }),
            serde_json::json!({ "gateway": {}, "connectTo": connect }),
            serde_json::json!({ "storage": {}, "connectTo": connect }),
        ] {
            assert_eq!(HandleSpec::of(&cluster(other)), None);
        }
    }

    #[test]
    fn every_state_of_the_token_has_its_reason() {
        for (state, reason, says) in [
            (
                TokenState::SecretMissing,
                HandleReason::TokenNotFound,
                "Secret garage-admin does not exist",
            ),
            (
                TokenState::KeyMissing,
                HandleReason::TokenNotFound,
                "has no key admin-token",
            ),
            (
                TokenState::Unreadable("forbidden".into()),
                HandleReason::TokenUnreadable,
                "cannot be read: forbidden",
            ),
            (
                TokenState::Bad(TokenError::Empty),
                HandleReason::InvalidToken,
                "the admin token is empty",
            ),
        ] {
            let verdict = usable(&target(&spec()).unwrap(), state).unwrap_err();
            assert_eq!((verdict.phase, verdict.reason), (HandlePhase::Pending, reason));
            assert!(verdict.message.contains(says), "{}", verdict.message);
            assert_eq!(verdict.retry, HANDLE_INTERVAL);
        }
    }

    #[test]
    fn every_answer_to_the_probe_has_its_phase() {
        use AdminErrorClass as E;
        use HandlePhase::{Pending, Running};
        use HandleReason as R;
        for (probe, phase, reason, says) in [
            (health("healthy", 256), Running, R::AdminAPIReachable, "answers"),
            (health("degraded", 256), Running, R::AdminAPIReachable, "degraded"),
            (
                health("unavailable", 256),
                Running,
                R::AdminAPIReachable,
                "no quorum",
            ),
            (
                health("unavailable", 0),
                Running,
                R::AdminAPIReachable,
                "no layout",
            ),
            (
                failed(E::Unauthorized),
                Pending,
                R::Unauthorized,
                "GetClusterHealth: why",
            ),
            (failed(E::Connect), Pending, R::AdminAPIUnreachable, "why"),
            (failed(E::Timeout), Pending, R::AdminAPIUnreachable, "why"),
            (failed(E::Unavailable), Pending, R::AdminAPIUnreachable, "why"),
            (failed(E::Garbage), Pending, R::NotGarage, "why"),
            (failed(E::TooLarge), Pending, R::NotGarage, "why"),
            (failed(E::Redirect), Pending, R::NotGarage, "why"),
            (failed(E::Invalid), Pending, R::NotGarage, "why"),
        ] {
            let verdict = probed(&target(&spec()).unwrap().endpoint, &probe);
            assert_eq!((verdict.phase, verdict.reason), (phase, reason), "{probe:?}");
            assert!(verdict.message.contains(says), "{}", verdict.message);
            assert!(
                verdict.message.contains("http://garage.example.com:3903"),
                "{}",
                verdict.message
            );
        }
    }

    #[test]
    fn the_token_is_taken_from_the_named_key_and_never_shown() {
        let data = BTreeMap::from([
            ("admin-token".to_owned(), b"first-secret\n".to_vec()),
            ("other".to_owned(), b"second.secret".to_vec()),
            ("binary".to_owned(), vec![0xff, 0xfe]),
            ("blank".to_owned(), b" \n".to_vec()),
        ]);
        let state = |key: Option<&str>| {
            token_state(
                Some(&data),
                &TokenRef {
                    name: "s".into(),
                    key: key.map(str::to_owned),
                },
            )
        };
        assert!(matches!(state(None), TokenState::Usable(_)));
        assert!(matches!(state(Some("")), TokenState::Usable(_)));
        assert!(
            matches!(state(Some("other")), TokenState::Usable(_)),
            "a table token has a dot"
        );
        assert!(matches!(state(Some("none")), TokenState::KeyMissing));
        assert!(matches!(
            state(Some("binary")),
            TokenState::Bad(TokenError::NotVisibleAscii)
        ));
        assert!(matches!(state(Some("blank")), TokenState::Bad(TokenError::Empty)));
        let absent: Option<&BTreeMap<String, Vec<u8>>> = None;
        assert!(matches!(
            token_state(
                absent,
                &TokenRef {
                    name: "s".into(),
                    key: None
                }
            ),
            TokenState::SecretMissing
        ));
        assert!(!format!("{:?}", state(None)).contains("first-secret"));
    }
}
