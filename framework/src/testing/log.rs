//! The request log: every request that a client made, in order, ready for counting and for snapshots.

use std::fmt;

use serde_json::Value;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of one object's metadata.
    GetMetadata,
    /// GET of a collection.
    List,
    /// GET of a collection's metadata.
    ListMetadata,
    /// An open watch.
    Watch,
    /// An open watch of metadata.
    WatchMetadata,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH with a JSON merge patch.
    MergePatch,
    /// PATCH with a JSON patch.
    JsonPatch,
    /// PATCH with server-side apply.
    Apply,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// `/api`, `/apis` and below, `/version`, health: everything without a resource.
    Discovery,
}

impl Verb {
    /// Whether the request wants to change something.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Verb::Create
                | Verb::Update
                | Verb::MergePatch
                | Verb::JsonPatch
                | Verb::Apply
                | Verb::Delete
                | Verb::DeleteCollection
        )
    }

    /// Whether the request reads objects: get or list, not watch.
    pub fn is_read(self) -> bool {
        matches!(
            self,
            Verb::Get | Verb::GetMetadata | Verb::List | Verb::ListMetadata
        )
    }

    /// The verb that RBAC knows.
    pub fn rbac(self) -> &'static str {
        match self {
            Verb::Get | Verb::GetMetadata | Verb::Discovery => "get",
            Verb::List | Verb::ListMetadata => "list",
            Verb::Watch | Verb::WatchMetadata => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::MergePatch | Verb::JsonPatch | Verb::Apply => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Get => "GET",
            Verb::GetMetadata => "GET(metadata)",
            Verb::List => "LIST",
            Verb::ListMetadata => "LIST(metadata)",
            Verb::Watch => "WATCH",
            Verb::WatchMetadata => "WATCH(metadata)",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::MergePatch => "PATCH(merge)",
            Verb::JsonPatch => "PATCH(json)",
            Verb::Apply => "APPLY",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETE(collection)",
            Verb::Discovery => "DISCOVERY",
        })
    }
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet: delayed, hanging, or the client went away.
    Pending,
    /// An HTTP status.
    Code(u16),
    /// The server did it with this status, the client saw a connection error.
    Lost(u16),
    /// A connection error; the server did nothing.
    Broken,
}

/// One request.
///
/// `Debug` is one line for snapshots, without bodies:
/// `APPLY networking.k8s.io/v1 ingresses/status ns/name by manager -> 200`.
#[derive(Clone, PartialEq)]
pub struct Call {
    /// Who asked (`ApiServer::client_as`).
    pub user: String,
    /// What was asked.
    pub verb: Verb,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource name; the path for [`Verb::Discovery`].
    pub resource: String,
    /// For example `status`; empty for the object itself.
    pub subresource: String,
    /// Empty for cluster scope or all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// The `fieldManager` parameter; empty when none was sent.
    pub field_manager: String,
    /// The `labelSelector` and `fieldSelector` parameters, joined by `;`.
    pub selector: String,
    /// What came back.
    pub answer: Answer,
    /// The request body, when it was JSON.
    pub body: Option<Value>,
}

impl Call {
    /// The HTTP status that the server came to, if any.
    pub fn code(&self) -> Option<u16> {
        match self.answer {
            Answer::Code(code) | Answer::Lost(code) => Some(code),
            Answer::Pending | Answer::Broken => None,
        }
    }

    /// Whether the server took the request and did it (2xx).
    pub fn succeeded(&self) -> bool {
        self.code().is_some_and(|code| (200..300).contains(&code))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verb)?;
        if self.verb == Verb::Discovery {
            write!(f, " {}", self.resource)?;
        } else {
            let version = &self.version;
            match self.group.as_str() {
                "" => write!(f, " {version}")?,
                group => write!(f, " {group}/{version}")?,
            }
            write!(f, " {}", self.resource)?;
            if !self.subresource.is_empty() {
                write!(f, "/{}", self.subresource)?;
            }
            match (self.namespace.as_str(), self.name.as_str()) {
                ("", "") => {}
                ("", name) => write!(f, " {name}")?,
                (ns, "") => write!(f, " {ns}/*")?,
                (ns, name) => write!(f, " {ns}/{name}")?,
            }
        }
        if !self.selector.is_empty() {
            write!(f, " [{}]", self.selector)?;
        }
        if !self.field_manager.is_empty() {
            write!(f, " by {}", self.field_manager)?;
        }
        match self.answer {
            Answer::Pending => write!(f, " -> no answer"),
            Answer::Code(code) => write!(f, " -> {code}"),
            Answer::Lost(code) => write!(f, " -> {code}, answer lost"),
            Answer::Broken => write!(f, " -> connection error"),
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A place in the log, from `ApiServer::mark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub(crate) usize);
