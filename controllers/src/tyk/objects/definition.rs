//! TykOasApiDefinition, as far as an attached definition needs it.

use serde_json::Value;

use super::{
    DecodeError, Meta, Problem, Scope,
    walk::{Node, Place},
};

/// A TykOasApiDefinition. Without `targets` it is another operator's business and nothing is said about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TykOasApiDefinition {
    /// Metadata.
    pub meta: Meta,
    /// spec.targetRefs
    pub targets: Vec<TargetRef>,
    /// spec.tykOAS.configmapRef; `None` when missing.
    pub config_map: Option<ConfigMapRef>,
    /// Field paths of the object itself that set what the route sets, e.g. `spec.customDomain`.
    pub route_owned: Vec<String>,
    /// Fields that do not decode.
    pub problems: Vec<Problem>,
}

/// What a definition is attached to, in its own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetRef {
    /// API group, as written.
    pub group: String,
    /// Kind, as written.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// Where the document is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMapRef {
    /// Name of the ConfigMap.
    pub name: String,
    /// Namespace, if written. Another than the definition's own is refused.
    pub namespace: Option<String>,
    /// spec.tykOAS.configmapRef.keyName, if written.
    pub key: Option<String>,
}

/// Fields of spec that belong to the document of an attached definition and are read nowhere else. Passing over one
/// would leave an API more open than its author asked for.
const NOT_WITH_TARGETS: [&str; 6] = [
    "certificatePinning",
    "clientCertificate",
    "jwtAuth",
    "mutualTLS",
    "upstreamRequestSigning",
    "versioning",
];

impl TykOasApiDefinition {
    /// Reads a TykOasApiDefinition.
    pub fn decode(value: &Value) -> Result<Self, DecodeError> {
        let mut definition = Self {
            meta: Meta::decode(value, Scope::Namespaced)?,
            ..Self::default()
        };
        let problems = &mut Vec::new();
        if let Some(spec) = value.get("spec").filter(|spec| !spec.is_null())
            && let Some(spec) = Node::of(Place::Root("spec"), spec, problems)
        {
            definition.targets = spec.each("targetRefs", problems, |target, problems| {
                target.only(&["group", "kind", "name"], problems);
                Some(TargetRef {
                    group: target.text("group", problems).unwrap_or_default().to_owned(),
                    kind: target.required("kind", problems)?.to_owned(),
                    name: target.required("name", problems)?.to_owned(),
                })
            });
            // Without targets it is another operator's, and nothing is said about it.
            if !definition.targets.is_empty() || !problems.is_empty() {
                definition.read(&spec, problems);
            }
        }
        definition.problems = std::mem::take(problems);
        Ok(definition)
    }

    fn read(&mut self, spec: &Node<'_, '_>, problems: &mut Vec<Problem>) {
        self.config_map = spec
            .with("tykOAS", problems, |oas, problems| {
                oas.with("configmapRef", problems, |reference, problems| ConfigMapRef {
                    name: reference.text("name", problems).unwrap_or_default().to_owned(),
                    namespace: reference.filled("namespace", problems).map(str::to_owned),
                    key: reference.filled("keyName", problems).map(str::to_owned),
                })
            })
            .flatten()
            .filter(|reference| !reference.name.is_empty());
        for name in spec.names() {
            match name {
                // The connection is that of the class; categories are a matter of the Dashboard's lists.
                "targetRefs" | "tykOAS" | "contextRef" | "categories" => {}
                "customDomain" => self.route_owned.push(spec.at(name).to_string()),
                name if NOT_WITH_TARGETS.contains(&name) => {
                    problems.push(spec.at(name).problem(
                        "is not supported together with targetRefs; put the setting into the document",
                    ))
                }
                name => problems.push(
                    spec.at(name)
                        .problem("is not supported together with targetRefs; remove the field"),
                ),
            }
        }
    }
}
