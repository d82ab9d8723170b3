//! IngressClasses: which ones there are, and whether a live Ingress has one that a controller serves. Judges the live
//! object, never the wanted one: another client may have set or removed the class, and a class may be named by the
//! older annotation. Pure.

use std::fmt;

use reconcile_kit::Child;
use serde_json::Value;

use super::ingress::addresses;

/// The older way to name a class. Controllers that know only this way have no IngressClass object.
pub const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// What the operator knows of IngressClasses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IngressClasses {
    /// Nothing, and nothing is concluded from it: manifests without a cluster.
    #[default]
    Assumed,
    /// This installation may not read them.
    Unreadable,
    /// All of them.
    Known(Vec<KnownClass>),
}

/// One IngressClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownClass {
    /// Its name.
    pub name: String,
    /// Marked as the default class.
    pub default: bool,
}

/// Whether a live Ingress has a class to be served by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassState {
    /// It has one.
    Fine,
    /// The IngressClass that it names does not exist.
    Missing(String),
    /// It names none, and none is the default.
    NoDefault,
    /// It names none although this one is the default: the API server fills the default in when an Ingress is created,
    /// and never later.
    Unclassed(String),
    /// The classes cannot be read, and no controller has given the Ingress an address. With the class that it names.
    Unchecked(Option<String>),
}

impl ClassState {
    /// The state of a live Ingress. `wanted`: the class that was asked for, where the live object is not known.
    pub fn of(live: Option<&Child>, wanted: Option<&str>, classes: &IngressClasses) -> Self {
        let annotation = live
            .and_then(|live| live.metadata.annotations.as_ref()?.get(CLASS_ANNOTATION))
            .is_some_and(|class| !class.is_empty());
        let rest = live.map(Child::rest).unwrap_or_default();
        let named = match rest.get("spec") {
            Some(spec) => spec.get("ingressClassName").and_then(Value::as_str),
            None => wanted,
        };
        let named = named.filter(|name| !name.is_empty());
        match (classes, named) {
            (IngressClasses::Assumed, _) => Self::Fine,
            // Nothing can be looked up for the annotation: some controllers know no IngressClass objects.
            (_, None) if annotation => Self::Fine,
            (IngressClasses::Unreadable, _) if !addresses(&rest).is_empty() => Self::Fine,
            (IngressClasses::Unreadable, named) => Self::Unchecked(named.map(str::to_owned)),
            (IngressClasses::Known(all), Some(name)) => match all.iter().any(|class| class.name == name) {
                true => Self::Fine,
                false => Self::Missing(name.to_owned()),
            },
            (IngressClasses::Known(all), None) => match all.iter().find(|class| class.default) {
                Some(class) => Self::Unclassed(class.name.clone()),
                None => Self::NoDefault,
            },
        }
    }

    /// Whether it is certain that no controller serves the Ingress by its class.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Self::Fine | Self::Unchecked(_))
    }
}

impl fmt::Display for ClassState {
    /// What a message says after the name of the Ingress; nothing for `Fine`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fine => Ok(()),
            Self::Missing(name) => {
                write!(
                    f,
                    "there is no IngressClass {name}, so no controller serves it yet"
                )
            }
            Self::NoDefault => f.write_str(
                "it names no class and no IngressClass is the default, so no controller serves it yet",
            ),
            Self::Unclassed(default) => write!(
                f,
                "it names no class, and the default IngressClass {default} is filled in only when an Ingress is created: \
                 set spec.websiteExposure.ingress.ingressClassName, or delete the Ingress to have it created anew"
            ),
            Self::Unchecked(named) => {
                match named {
                    Some(name) => write!(f, "its IngressClass {name} cannot be checked")?,
                    None => f.write_str("it names no class")?,
                }
                f.write_str(
                    ", because this installation may not read IngressClasses, and no controller has given it an address",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ingress(class: Value, annotation: Value, address: Value) -> Child {
        let mut live = json!({
            "metadata": { "name": "blog-website", "annotations": {} },
            "spec": { "rules": [] }, "status": { "loadBalancer": {} },
        });
        if !class.is_null() {
            live["spec"]["ingressClassName"] = class;
        }
        if !annotation.is_null() {
            live["metadata"]["annotations"][CLASS_ANNOTATION] = annotation;
        }
        if !address.is_null() {
            live["status"]["loadBalancer"]["ingress"] = json!([{ "ip": address }]);
        }
        Child::from_value(live).unwrap()
    }

    fn known(classes: &[(&str, bool)]) -> IngressClasses {
        let known = |(name, default): &(&str, bool)| KnownClass {
            name: (*name).to_owned(),
            default: *default,
        };
        IngressClasses::Known(classes.iter().map(known).collect())
    }

    #[test]
    fn the_class_of_the_live_ingress_counts_and_the_annotation_is_one() {
        let null = || Value::Null;
        let one = || known(&[("public", false)]);
        let default = || known(&[("public", true)]);
        let missing = |name: &str| ClassState::Missing(name.to_owned());
        for (live, classes, state) in [
            (ingress(json!("public"), null(), null()), one(), ClassState::Fine),
            (ingress(json!("gone"), null(), null()), one(), missing("gone")),
            (ingress(null(), null(), null()), one(), ClassState::NoDefault),
            (
                ingress(null(), null(), null()),
                default(),
                ClassState::Unclassed("public".into()),
            ),
            (ingress(null(), json!("gce"), null()), one(), ClassState::Fine),
            (ingress(null(), json!("gce"), null()), default(), ClassState::Fine),
            (ingress(null(), json!(""), null()), one(), ClassState::NoDefault),
            // The field wins over the annotation.
            (
                ingress(json!("gone"), json!("gce"), null()),
                one(),
                missing("gone"),
            ),
            (
                ingress(json!("publik"), null(), null()),
                IngressClasses::Unreadable,
                ClassState::Unchecked(Some("publik".into())),
            ),
            (
                ingress(json!("publik"), null(), json!("192.0.2.1")),
                IngressClasses::Unreadable,
                ClassState::Fine,
            ),
            (
                ingress(null(), null(), null()),
                IngressClasses::Unreadable,
                ClassState::Unchecked(None),
            ),
            (
                ingress(json!("gone"), null(), null()),
                IngressClasses::Assumed,
                ClassState::Fine,
            ),
        ] {
            // The wanted class is never asked where the live object is known.
            let found = ClassState::of(Some(&live), Some("wanted"), &classes);
            assert_eq!(found, state, "{} {classes:?}", live.rest());
            assert_eq!(found.to_string().is_empty(), state == ClassState::Fine);
        }
        assert_eq!(ClassState::of(None, Some("wanted"), &one()), missing("wanted"));
    }
}
