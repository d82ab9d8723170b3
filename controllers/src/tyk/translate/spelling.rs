//! Keys of a definition's document that Tyk takes for others. Says nothing about values.
//!
//! Tyk reads documents with Go's `encoding/json`, which matches the keys of fixed objects without regard to case: to it
//! `CustomDomain` is `customDomain`. Here keys are compared as they are written, so another spelling would get past the
//! checks, stand beside the route's own setting and replace it. It is refused, as far down as the route's settings reach.
//! Keys of maps (paths, operation ids) are the user's and compared exactly by Tyk too.

use serde_json::{Map, Value};

use super::EXTENSION;

/// An object with keys of its own.
struct Shape {
    /// Its keys, as Tyk spells them.
    keys: &'static [&'static str],
    /// What is below some of them.
    below: &'static [(&'static str, Below)],
}

/// What a key leads to.
enum Below {
    Object(&'static Shape),
    /// Keys are the user's, each value is of the shape.
    Map(&'static Shape),
    List(&'static Shape),
}

/// The OpenAPI part (facts: kin-openapi of the gateway); what is below the extension comes from [`GATEWAY`].
static ROOT: Shape = Shape {
    keys: &[
        "openapi",
        "components",
        "info",
        "paths",
        "security",
        "servers",
        "tags",
        "externalDocs",
        "webhooks",
        "jsonSchemaDialect",
    ],
    below: &[("info", Below::Object(&INFO)), ("paths", Below::Map(&PATH_ITEM))],
};

static INFO: Shape = Shape {
    keys: &[
        "title",
        "summary",
        "description",
        "termsOfService",
        "contact",
        "license",
        "version",
    ],
    below: &[],
};

static PATH_ITEM: Shape = Shape {
    keys: &[
        "$ref",
        "summary",
        "description",
        "connect",
        "delete",
        "get",
        "head",
        "options",
        "patch",
        "post",
        "put",
        "trace",
        "servers",
        "parameters",
    ],
    below: &[
        ("delete", Below::Object(&OPERATION)),
        ("get", Below::Object(&OPERATION)),
        ("head", Below::Object(&OPERATION)),
        ("options", Below::Object(&OPERATION)),
        ("patch", Below::Object(&OPERATION)),
        ("post", Below::Object(&OPERATION)),
        ("put", Below::Object(&OPERATION)),
        ("trace", Below::Object(&OPERATION)),
    ],
};

static OPERATION: Shape = Shape {
    keys: &[
        "tags",
        "summary",
        "description",
        "operationId",
        "parameters",
        "requestBody",
        "responses",
        "callbacks",
        "deprecated",
        "security",
        "servers",
        "externalDocs",
    ],
    below: &[],
};

/// The extension (facts: tyk §2.2 and the gateway's `apidef/oas`).
static GATEWAY: Shape = Shape {
    keys: &["info", "upstream", "server", "middleware", "errorOverrides"],
    below: &[
        ("info", Below::Object(&GATEWAY_INFO)),
        ("upstream", Below::Object(&UPSTREAM)),
        ("server", Below::Object(&SERVER)),
        ("middleware", Below::Object(&MIDDLEWARE)),
        ("errorOverrides", Below::Object(&ERROR_OVERRIDES)),
    ],
};

static GATEWAY_INFO: Shape = Shape {
    keys: &["id", "dbId", "orgId", "name", "expiration", "state", "versioning"],
    below: &[],
};

static UPSTREAM: Shape = Shape {
    keys: &[
        "url",
        "serviceDiscovery",
        "uptimeTests",
        "mutualTLS",
        "certificatePinning",
        "rateLimit",
        "authentication",
        "loadBalancing",
        "preserveHostHeader",
        "preserveTrailingSlash",
        "tlsTransport",
        "proxy",
        "enforceTimeout",
    ],
    below: &[],
};

static SERVER: Shape = Shape {
    keys: &[
        "listenPath",
        "slug",
        "authentication",
        "clientCertificates",
        "gatewayTags",
        "customDomain",
        "detailedActivityLogs",
        "detailedTracing",
        "eventHandlers",
        "contextVariables",
        "ipAccessControl",
        "batchProcessing",
        "protocol",
        "port",
    ],
    below: &[],
};

static MIDDLEWARE: Shape = Shape {
    keys: &["global", "operations", "mcpTools", "mcpResources", "mcpPrompts"],
    below: &[
        ("global", Below::Object(&GLOBAL)),
        ("operations", Below::Map(&SETTINGS)),
    ],
};

static GLOBAL: Shape = Shape {
    keys: &[
        "pluginConfig",
        "cors",
        "prePlugin",
        "prePlugins",
        "postAuthenticationPlugin",
        "postAuthenticationPlugins",
        "postPlugin",
        "postPlugins",
        "responsePlugin",
        "responsePlugins",
        "cache",
        "transformRequestHeaders",
        "transformResponseHeaders",
        "contextVariables",
        "trafficLogs",
        "requestSizeLimit",
        "ignoreCase",
        "skipRateLimit",
        "skipQuota",
        "skipQuotaReset",
    ],
    below: &[
        ("transformRequestHeaders", Below::Object(&TRANSFORM)),
        ("transformResponseHeaders", Below::Object(&TRANSFORM)),
    ],
};

/// What an operation is set to.
static SETTINGS: Shape = Shape {
    keys: &[
        "allow",
        "block",
        "ignoreAuthentication",
        "internal",
        "transformRequestMethod",
        "transformRequestBody",
        "transformResponseBody",
        "transformRequestHeaders",
        "transformResponseHeaders",
        "urlRewrite",
        "cache",
        "enforceTimeout",
        "validateRequest",
        "mockResponse",
        "virtualEndpoint",
        "postPlugins",
        "circuitBreaker",
        "trackEndpoint",
        "doNotTrackEndpoint",
        "requestSizeLimit",
        "rateLimit",
        "scopeCheck",
        "exchange",
    ],
    below: &[
        ("allow", Below::Object(&SWITCH)),
        ("block", Below::Object(&SWITCH)),
        ("mockResponse", Below::Object(&SWITCH)),
        ("urlRewrite", Below::Object(&SWITCH)),
        ("transformRequestHeaders", Below::Object(&TRANSFORM)),
        ("transformResponseHeaders", Below::Object(&TRANSFORM)),
    ],
};

/// A middleware of which only one thing matters here: whether it is on.
static SWITCH: Shape = Shape {
    keys: &["enabled"],
    below: &[],
};

static TRANSFORM: Shape = Shape {
    keys: &["enabled", "remove", "add"],
    below: &[("add", Below::List(&HEADER))],
};

static HEADER: Shape = Shape {
    keys: &["name", "value"],
    below: &[],
};

static ERROR_OVERRIDES: Shape = Shape {
    keys: &["enabled", "value"],
    below: &[],
};

/// Every key of a document that Tyk takes for another, as `field path: message`. A null counts: it may unset a setting.
pub(super) fn faults(root: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    object(&ROOT, root, "", false, &mut found);
    if let Some(extension) = root.get(EXTENSION).and_then(Value::as_object) {
        object(&GATEWAY, extension, EXTENSION, true, &mut found);
    }
    found
}

/// `ascii`: no key of Tyk's has other characters, and how those fold is not left to be guessed at.
fn object(shape: &Shape, map: &Map<String, Value>, place: &str, ascii: bool, found: &mut Vec<String>) {
    let here = if place.is_empty() { "the document" } else { place };
    for key in map.keys() {
        let folded = fold(key);
        match shape.keys.iter().find(|known| fold(known) == folded) {
            Some(known) if known == key => {}
            Some(known) => found.push(format!(
                "{here}: to Tyk the key {key:?} is {known}; write it like that, or remove it"
            )),
            None if ascii && !key.is_ascii() => {
                let short: String = key.chars().take(SHOWN).collect();
                found.push(format!(
                    "{here}: the key {short:?} is none of Tyk's; use ASCII letters"
                ));
            }
            None => {}
        }
    }
    for (key, below) in shape.below {
        let Some(value) = map.get(*key) else { continue };
        let place = if place.is_empty() {
            (*key).to_owned()
        } else {
            format!("{place}.{key}")
        };
        let mut each = |shape: &Shape, value: &Value, place: &str| {
            if let Some(map) = value.as_object() {
                object(shape, map, place, ascii, found);
            }
        };
        match below {
            Below::Object(shape) => each(shape, value, &place),
            Below::Map(shape) => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    each(shape, value, &format!("{place}.{name}"));
                }
            }
            Below::List(shape) => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    each(shape, value, &format!("{place}[{index}]"));
                }
            }
        }
    }
}

/// Most characters of a key that a message repeats.
const SHOWN: usize = 63;

/// A key as `encoding/json` compares it: two letters outside of ASCII, the long s and the Kelvin sign, fold into it.
fn fold(key: &str) -> String {
    key.chars()
        .map(|c| match c {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            c => c.to_ascii_lowercase(),
        })
        .collect()
}
