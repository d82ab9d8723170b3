//! Building blocks that several kinds share: references, quantities, open values, the schema of conditions.

use std::borrow::Cow;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Names the GarageCluster that something belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "!has(self.kubeConfigSecretRef)",
    "clusterRef.kubeConfigSecretRef is reserved and not supported: remove it",
))]
pub struct ClusterReference {
    /// Name of the GarageCluster.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the GarageCluster; the namespace of the referring object when left out. Another namespace needs a
    /// GarageReferenceGrant there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Reserved, not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config_secret_ref: Option<Open>,
}

/// One key of a Secret in the namespace of the referring object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyReference {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret; `admin-token` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
    /// Accepted for compatibility, without effect: a missing Secret is always reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A JSON object that is carried, not interpreted: its presence may matter, its content does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Open(pub Value);

/// Reads a part whose presence matters. `false` counts as absent: an older version of the kind, kept by a CRD that
/// preserves unknown fields, switches such a part by a boolean.
pub(crate) fn unless_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Open>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.filter(|value| *value != Value::Bool(false)).map(Open))
}

impl JsonSchema for Open {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Open".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// A Kubernetes quantity of bytes, as the user wrote it (`10Gi`, `5000000`, `1e9`).
///
/// Both JSON forms are decoded, text and number, because the API server stores what it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quantity(pub String);

impl Quantity {
    /// The value in bytes, rounded up to a whole byte as Kubernetes does.
    ///
    /// Gives `None` for text that is no quantity, for a negative one and for one that does not fit in 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        let text = self.0.trim();
        let split = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+' || c == '-'))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at_checked(split)?;
        let (number, negative) = match number.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (number.strip_prefix('+').unwrap_or(number), false),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.len() > 18 {
            return None;
        }
        let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
        // value = digits * multiplier / divisor
        let mut divisor: u128 = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let binary = |power: u32| 1024u128.checked_pow(power);
        let decimal = |power: u32| 10u128.checked_pow(power);
        let multiplier = match suffix {
            "" => 1,
            "Ki" => binary(1)?,
            "Mi" => binary(2)?,
            "Gi" => binary(3)?,
            "Ti" => binary(4)?,
            "Pi" => binary(5)?,
            "Ei" => binary(6)?,
            "k" => decimal(3)?,
            "M" => decimal(6)?,
            "G" => decimal(9)?,
            "T" => decimal(12)?,
            "P" => decimal(15)?,
            "E" => decimal(18)?,
            "m" => {
                divisor = divisor.checked_mul(1000)?;
                1
            }
            _ => {
                let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
                if exponent < 0 {
                    divisor = divisor.checked_mul(decimal(exponent.unsigned_abs())?)?;
                    1
                } else {
                    decimal(exponent.unsigned_abs())?
                }
            }
        };
        let value = digits.checked_mul(multiplier)?.div_ceil(divisor);
        if negative && value > 0 {
            return None;
        }
        u64::try_from(value).ok()
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) => Ok(Self(number.to_string())),
            other => Err(serde::de::Error::custom(format!(
                "expected a quantity, got {other}"
            ))),
        }
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": r"^\+?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(([KMGTPE]i)|[mkMGTPE]|[eE][+-]?[0-9]+)?$",
        })
    }
}

/// Schema of a `conditions` list: a map keyed by `type`, so that several managers can each own theirs.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "Latest observations, one per type.",
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": {
                    "description": "What was observed, for people.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "metadata.generation that the condition was set for.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "reason": {
                    "description": "Why, for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": { "description": "True, False or Unknown.", "type": "string", "enum": ["True", "False", "Unknown"] },
                "type": {
                    "description": "Which aspect of the object this is about.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 316,
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_bytes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("5000000", Some(5_000_000)),
            ("10Gi", Some(10 << 30)),
            ("1.5Ki", Some(1536)),
            ("2k", Some(2000)),
            ("1e3", Some(1000)),
            ("1E3", Some(1000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("100m", Some(1)),
            ("1500m", Some(2)),
            ("+3", Some(3)),
            (".5k", Some(500)),
            ("15Ei", Some(15 << 60)),
            ("16Ei", None),
            ("-1", None),
            ("-0", Some(0)),
            ("", None),
            ("Gi", None),
            ("10GB", None),
            ("1e99", None),
        ] {
            assert_eq!(Quantity(text.into()).bytes(), bytes, "{text:?}");
        }
    }

    #[test]
    fn quantities_decode_from_text_and_number() {
        let decode = |json: &str| serde_json::from_str::<Quantity>(json).map(|q| q.0).ok();
        assert_eq!(decode("\"10Gi\"").as_deref(), Some("10Gi"));
        assert_eq!(decode("1024").as_deref(), Some("1024"));
        assert_eq!(decode("true"), None);
    }
}
