//! What Tyk keeps of `x-tyk-api-gateway`: the names that it knows (compared without regard to case), and which of them it
//! writes out although they are empty. Everything else is lost on the way through its own types.

use std::{collections::BTreeMap, sync::OnceLock};

use serde_json::{Map, Value};

/// Names by level. `!`: written out also when empty; `=`: an object that stays though everything in it is empty; `~`: not
/// looked into; `{}` object, `[]` list of objects, `<>` objects by any name.
const KNOWN: &str = "
info!{id dbId orgId name! expiration state!{active! internal} versioning{enabled! name default! location! key
  versions![name! id!] stripVersioningData urlVersioningPattern fallbackToDefault}}
upstream!{url! serviceDiscovery~ uptimeTests~ mutualTLS~ certificatePinning~ rateLimit{enabled! rate! per!} authentication~
  loadBalancing{enabled! skipUnavailableHosts targets[url! weight!]} preserveHostHeader{enabled!}
  preserveTrailingSlash{enabled!} tlsTransport{insecureSkipVerify ciphers minVersion maxVersion forceCommonNameCheck}
  proxy{enabled! url!} enforceTimeout{enabled! duration}}
server!{listenPath!{value! strip} authentication~ clientCertificates{enabled! allowlist!} gatewayTags{enabled! tags!}
  customDomain{enabled! name! certificates} detailedActivityLogs{enabled!} detailedTracing{enabled!} eventHandlers~
  ipAccessControl{enabled! allow block} batchProcessing{enabled!} protocol port}
middleware{global{pluginConfig~ cors{enabled! maxAge allowCredentials exposedHeaders allowedHeaders optionsPassthrough debug
    allowedOrigins allowedMethods} prePlugin~ prePlugins~ postAuthenticationPlugin~ postAuthenticationPlugins~ postPlugin~
    postPlugins~ responsePlugin~ responsePlugins~ cache~ transformRequestHeaders{enabled! remove add[name! value!]}
    transformResponseHeaders{enabled! remove add[name! value!]} contextVariables{enabled!} trafficLogs~
    requestSizeLimit{enabled! value!} ignoreCase{enabled!} skipRateLimit skipQuota skipQuotaReset}
  operations<allow={enabled! ignoreCase} block={enabled! ignoreCase} ignoreAuthentication={enabled! ignoreCase}
    internal={enabled!} transformRequestMethod={enabled! toMethod!} transformRequestBody={enabled! format! path body}
    transformResponseBody={enabled! format! path body} transformRequestHeaders={enabled! remove add[name! value!]}
    transformResponseHeaders={enabled! remove add[name! value!]}
    urlRewrite={enabled! pattern rewriteTo triggers[condition! rules[in! name pattern! negate] rewriteTo!]}
    cache~ enforceTimeout={enabled! value! duration} validateRequest={enabled! errorResponseCode}
    mockResponse={enabled! code body headers[name! value!] fromOASExamples={enabled! code contentType exampleName}}
    virtualEndpoint~ postPlugins~ circuitBreaker~ trackEndpoint={enabled!} doNotTrackEndpoint={enabled!}
    requestSizeLimit={enabled! value!} rateLimit~ scopeCheck~ exchange~>
  mcpTools~ mcpResources~ mcpPrompts~}
errorOverrides{enabled! value~}
";

/// A level of names.
#[derive(Debug, Default)]
struct Level {
    /// By name in lower case.
    names: BTreeMap<String, Name>,
}

#[derive(Debug)]
struct Name {
    spelled: String,
    always: bool,
    stays: bool,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Leaf,
    Raw,
    Object(Level),
    List(Level),
    Map(Level),
}

/// Reads a level up to its closing bracket.
fn read(text: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Level {
    let mut level = Level::default();
    loop {
        while text.next_if(|c| c.is_whitespace()).is_some() {}
        let mut spelled = String::new();
        while let Some(c) = text.next_if(|c| c.is_alphanumeric()) {
            spelled.push(c);
        }
        if spelled.is_empty() {
            // The end of the text, or a closing bracket.
            text.next();
            return level;
        }
        let always = text.next_if_eq(&'!').is_some();
        let stays = text.next_if_eq(&'=').is_some();
        let inner = match text.peek() {
            Some('~') => {
                text.next();
                Inner::Raw
            }
            Some('{') => {
                text.next();
                Inner::Object(read(text))
            }
            Some('[') => {
                text.next();
                Inner::List(read(text))
            }
            Some('<') => {
                text.next();
                Inner::Map(read(text))
            }
            _ => Inner::Leaf,
        };
        let name = Name {
            spelled: spelled.clone(),
            always,
            stays,
            inner,
        };
        level.names.insert(spelled.to_lowercase(), name);
    }
}

fn known() -> &'static Level {
    static KNOWN_LEVEL: OnceLock<Level> = OnceLock::new();
    KNOWN_LEVEL.get_or_init(|| read(&mut KNOWN.chars().peekable()))
}

/// The name as Tyk's JSON decoder compares it: simple case folding, by which the Kelvin sign is a k and the long s an s.
fn folded(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '\u{212a}' => 'k',
            '\u{17f}' => 's',
            c => c,
        })
        .collect::<String>()
        .to_lowercase()
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// All of an object is false, zero or empty, at every depth.
fn zero(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().all(zero),
        other => empty(other),
    }
}

impl Level {
    fn keep(&self, object: &Map<String, Value>) -> Map<String, Value> {
        let mut kept = Map::new();
        for (key, value) in object {
            let Some(name) = self.names.get(&folded(key)) else {
                continue;
            };
            let value = name.inner.keep(value);
            let gone = match &name.inner {
                Inner::Object(_) if name.stays => value.is_null(),
                Inner::Object(_) => zero(&value),
                _ => empty(&value),
            };
            if !gone || name.always {
                kept.insert(name.spelled.clone(), value);
            }
        }
        kept
    }
}

impl Inner {
    fn keep(&self, value: &Value) -> Value {
        match (self, value) {
            (Self::Object(level), Value::Object(fields)) => Value::Object(level.keep(fields)),
            (Self::List(level), Value::Array(items)) => items
                .iter()
                .map(|item| match item {
                    Value::Object(fields) => Value::Object(level.keep(fields)),
                    other => other.clone(),
                })
                .collect(),
            (Self::Map(level), Value::Object(entries)) => entries
                .iter()
                .map(|(key, value)| match value {
                    Value::Object(fields) => (key.clone(), Value::Object(level.keep(fields))),
                    other => (key.clone(), other.clone()),
                })
                .collect(),
            (_, other) => other.clone(),
        }
    }
}

/// An extension as Tyk holds it: known names in their own spelling, without what is empty.
pub(crate) fn kept(extension: &Value) -> Value {
    match extension {
        Value::Object(fields) => Value::Object(known().keep(fields)),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::kept;

    #[test]
    fn unknown_names_and_empty_values_go_and_spelling_is_mended() {
        let given = json!({
            "x-foo": 1,
            "info": {"id": "a", "name": "", "STATE": {"active": true, "internal": false}},
            "server": {"listenPath": {"value": "/a", "strip": false}, "cu\u{17f}tomDomain": {"enabled": true, "name": "h"}},
            "upstream": {"url": "", "preserveHostHeader": {"enabled": false}},
            "middleware": {"operations": {"get": {"mockResponse": {"enabled": false, "body": ""}, "bloc\u{212a}": {"enabled": true}}}},
        });
        assert_eq!(
            kept(&given),
            json!({
                "info": {"id": "a", "name": "", "state": {"active": true}},
                "server": {"listenPath": {"value": "/a"}, "customDomain": {"enabled": true, "name": "h"}},
                "upstream": {"url": ""},
                "middleware": {"operations": {"get": {"mockResponse": {"enabled": false}, "block": {"enabled": true}}}},
            })
        );
    }
}
