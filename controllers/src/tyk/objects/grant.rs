//! ReferenceGrant (v1 and v1beta1 alike).

use serde_json::Value;

use super::{
    DecodeError, Key, Meta, Scope,
    walk::{Node, Place},
};

/// A ReferenceGrant in the namespace of what it grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceGrant {
    /// Namespace and name.
    pub key: Key,
    /// spec.from as (group, kind, namespace).
    pub from: Vec<(String, String, String)>,
    /// spec.to as (group, kind, name); no name means all. The core group is the empty string.
    pub to: Vec<(String, String, Option<String>)>,
}

impl ReferenceGrant {
    /// Reads a ReferenceGrant. An entry that does not decode grants nothing.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let mut grant = Self {
            key: Meta::decode(value, Scope::Namespaced)?.key,
            ..Self::default()
        };
        let ignored = &mut Vec::new();
        if let Some(spec) = value
            .get("spec")
            .and_then(|spec| Node::of(Place::Root("spec"), spec, ignored))
        {
            grant.from = spec.each("from", ignored, |from, problems| {
                Some((
                    from.text("group", problems)?.to_owned(),
                    from.required("kind", problems)?.to_owned(),
                    from.required("namespace", problems)?.to_owned(),
                ))
            });
            grant.to = spec.each("to", ignored, |to, problems| {
                // A name of a wrong type must not become "all".
                let name = match to.get("name") {
                    None => None,
                    Some(name) => Some(name.as_str()?.to_owned()).filter(|name| !name.is_empty()),
                };
                Some((
                    to.text("group", problems)?.to_owned(),
                    to.required("kind", problems)?.to_owned(),
                    name,
                ))
            });
        }
        Ok(grant)
    }
}
