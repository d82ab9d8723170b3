//! The API of an open-source gateway. POST creates and replaces; nothing is served, and nothing is shown by GET, before
//! a reload.

use std::io::Read;

use async_trait::async_trait;
use reqwest::{Method, header::HeaderName};
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::{
        translate::{Owner, stamp::OWNER},
        verdict::Mode,
    },
    Bundle, Listed, Signed, StoredCertificate, TykApi, TykError,
    TykErrorClass::{Failing, Refused, Unreachable},
    http::{Access, Answer, Call, Deadline, Http, LIST, MayWrite, Pools},
};
use crate::telemetry::tyk::TykMeter;

const APIS: &str = "/tyk/apis/oas";
const CERTIFICATES: &str = "/tyk/certs";

/// A client of one gateway, or of several behind one address.
pub struct Gateway {
    http: Http,
    org: String,
}

impl Gateway {
    /// Connects when a call is made.
    ///
    /// # Errors
    /// `NoConnection`: the URL or the credential cannot be used.
    pub fn new(
        pools: &Pools,
        access: &Access,
        may_write: MayWrite,
        meter: TykMeter,
    ) -> Result<Self, TykError> {
        let header = HeaderName::from_static("x-tyk-authorization");
        Ok(Self {
            http: Http::new(pools, access, header, Mode::OpenSource, may_write, meter)?,
            org: access.org.clone(),
        })
    }

    async fn unstore(&self, id: &str, until: Deadline) -> Result<(), TykError> {
        let query = [("org_id", self.org.as_str())];
        let path = format!("{CERTIFICATES}/{id}");
        let remove = Call::new("delete_certificate", Method::DELETE, path).query(&query);
        let answer = self.http.call(&remove, until).await?;
        if answer.ok() || missing(&answer) {
            return Ok(());
        }
        Err(self.http.refused(&remove, &answer))
    }

    async fn stored(&self, id: &str, until: Deadline) -> Result<Option<StoredCertificate>, TykError> {
        let call = Call::new("get_certificate", Method::GET, format!("{CERTIFICATES}/{id}"));
        let answer = self.http.call(&call, until).await?;
        stored(&self.http, &call, &answer)
    }
}

/// Whether a 404 is Tyk's own word: that of a proxy without a route says nothing about what Tyk holds, and some of them have
/// a message too. Tyk's says of itself that it is an error.
pub(super) fn missing(answer: &Answer) -> bool {
    let of_tyk = |value: Value| {
        let text = |keys: [&str; 2]| keys.iter().find_map(|key| value.get(*key)?.as_str());
        let status = text(["status", "Status"]);
        status.is_some_and(|status| status.eq_ignore_ascii_case("error"))
            && text(["message", "Message"]).is_some()
    };
    answer.status == 404 && serde_json::from_slice(&answer.body).is_ok_and(of_tyk)
}

/// What both APIs answer to the question for one certificate.
pub(super) fn stored(
    http: &Http,
    call: &Call<'_>,
    answer: &Answer,
) -> Result<Option<StoredCertificate>, TykError> {
    if answer.ok() {
        let value = http.json(call, answer)?;
        let has_private = value
            .get("has_private")
            .and_then(Value::as_bool)
            .unwrap_or_default();
        return Ok(Some(StoredCertificate { has_private }));
    }
    // The Dashboard says 400 or 404.
    if missing(answer) || (answer.status == 400 && answer.says("could not retrieve")) {
        return Ok(None);
    }
    Err(http.refused(call, answer))
}

/// Why a certificate was not taken, told apart by the text: every refusal has the same code.
pub(super) fn bad_certificate(http: &Http, call: &Call<'_>, answer: &Answer) -> TykError {
    let hint = if answer.says("private key type does not match") || answer.says("private key does not match")
    {
        "; tls.key does not belong to the first certificate of tls.crt"
    } else if answer.says("expired") {
        "; renew the certificate in the Secret"
    } else if answer.says("failed to decode certificate") || answer.says("PEM") {
        "; tls.crt and tls.key must be PEM"
    } else if answer.says("x509:") || answer.says("tls:") || answer.says("asn1:") {
        "; it is about what tls.crt and tls.key hold"
    } else {
        return http.refused(call, answer);
    };
    http.answered(Refused, call, answer, hint)
}

/// A document as it was answered; anything else but an object is none.
pub(super) fn document(http: &Http, call: &Call<'_>, answer: &Answer) -> Result<Value, TykError> {
    let value = http.json(call, answer)?;
    if value.is_object() {
        return Ok(value);
    }
    Err(http.answered(Failing, call, answer, "; this is no Tyk OAS document"))
}

/// What is read of each document of a list.
#[derive(Deserialize)]
struct Shown {
    #[serde(rename = "x-routewright-owner")]
    owner: Option<Value>,
    #[serde(rename = "x-tyk-api-gateway")]
    extension: Option<Extension>,
}

#[derive(Deserialize)]
struct Extension {
    info: Option<Info>,
}

#[derive(Deserialize)]
struct Info {
    id: Option<String>,
}

impl Shown {
    fn listed(self) -> Option<Listed> {
        let id = self.extension?.info?.id?;
        let document = self.owner.map(|owner| Value::from_iter([(OWNER, owner)]));
        let owner = document.and_then(|document| Owner::of(&document));
        let signed = owner.map_or(Signed::Not, Signed::By);
        Some(Listed { id, signed })
    }
}

fn read_list(list: &mut dyn Read) -> Result<Vec<Listed>, serde_json::Error> {
    // Go writes an empty list that was never made as null.
    let shown: Option<Vec<Shown>> = serde_json::from_reader(list)?;
    Ok(shown.into_iter().flatten().filter_map(Shown::listed).collect())
}

#[async_trait]
impl TykApi for Gateway {
    fn mode(&self) -> Mode {
        Mode::OpenSource
    }

    async fn get(&self, id: &str) -> Result<Option<Value>, TykError> {
        let call = Call::new("get", Method::GET, format!("{APIS}/{id}"));
        let answer = self.http.call(&call, self.http.deadline()).await?;
        if answer.ok() {
            return document(&self.http, &call, &answer).map(Some);
        }
        if missing(&answer) {
            return Ok(None);
        }
        Err(self.http.refused(&call, &answer))
    }

    async fn list(&self) -> Result<Vec<Listed>, TykError> {
        let mut call = Call::new("list", Method::GET, APIS);
        (call.long, call.most) = (true, Some(LIST));
        call.parse = Some(read_list);
        let answer = self.http.call(&call, self.http.deadline()).await?;
        if !answer.ok() {
            return Err(self.http.refused(&call, &answer));
        }
        answer.listed.ok_or_else(|| {
            self.http
                .error(Failing, &call, "the answer is no list of Tyk OAS documents")
        })
    }

    async fn put(&self, id: &str, document: &Value, exists: bool) -> Result<(), TykError> {
        let body = document.to_string();
        let verb = if exists { "update" } else { "create" };
        let call = Call::new(verb, Method::POST, APIS).body("application/json", body.as_bytes());
        let answer = self.http.call(&call, self.http.deadline()).await?;
        if !answer.ok() {
            return Err(self.http.refused(&call, &answer));
        }
        let value = self.http.json(&call, &answer)?;
        if value.get("key").and_then(Value::as_str) == Some(id) {
            return Ok(());
        }
        let hint = format!("; this is not about {id}");
        Err(self.http.answered(Failing, &call, &answer, &hint))
    }

    async fn delete(&self, id: &str) -> Result<bool, TykError> {
        let mut call = Call::new("delete", Method::DELETE, format!("{APIS}/{id}"));
        // Said of what was deleted already and is still loaded; repeating it helps no more than asking after a reload.
        call.answer = Some("delete failed");
        let answer = self.http.call(&call, self.http.deadline()).await?;
        // Not loaded is no proof either: it may be accepted and not loaded yet.
        if answer.ok() || missing(&answer) || answer.status >= 500 {
            return Ok(false);
        }
        Err(self.http.refused(&call, &answer))
    }

    /// 503 while it starts. Any other answer says nothing: behind a control port of its own there is no such page.
    async fn ready(&self) -> bool {
        let mut call = Call::new("ready", Method::GET, "/ready");
        (call.repeat, call.answer) = (false, Some(""));
        let answer = self.http.call(&call, self.http.deadline()).await;
        !answer.is_ok_and(|answer| answer.status == 503)
    }

    /// First the other nodes are told through Redis, which answers at once, then this one is told and waited for: it
    /// gathers what it is told within its tick of a second, so that it reloads once.
    async fn reload(&self) -> Result<(), TykError> {
        let mut group = Call::new("reload_group", Method::GET, "/tyk/reload/group");
        group.writes = true;
        let answer = self.http.call(&group, self.http.deadline()).await?;
        if !answer.ok() {
            return Err(self.http.refused(&group, &answer));
        }
        let mut call = Call::new("reload", Method::GET, "/tyk/reload/").query(&[("block", "true")]);
        call.writes = true;
        call.long = true;
        let (began, until) = (tokio::time::Instant::now(), self.http.reload_deadline());
        let answer = match self.http.call(&call, until).await {
            Ok(answer) => answer,
            Err(error) => {
                let over = error.class == Unreachable && tokio::time::Instant::now() >= until;
                if over {
                    self.http.reloaded(began.elapsed(), true);
                }
                return Err(error);
            }
        };
        if !answer.ok() {
            return Err(self.http.refused(&call, &answer));
        }
        self.http.reloaded(began.elapsed(), false);
        self.http.meter().reloaded(began.elapsed().as_secs_f64());
        Ok(())
    }

    async fn certificate(&self, id: &str) -> Result<Option<StoredCertificate>, TykError> {
        self.stored(id, self.http.deadline()).await
    }

    async fn replace(&self, id: &str, bundle: &Bundle) -> Result<String, TykError> {
        self.unstore(id, self.http.deadline()).await?;
        self.upload(id, bundle).await
    }

    async fn upload(&self, id: &str, bundle: &Bundle) -> Result<String, TykError> {
        let until = self.http.deadline();
        let query = [("org_id", self.org.as_str())];
        let call = Call::new("upload_certificate", Method::POST, CERTIFICATES)
            .query(&query)
            .body("application/x-pem-file", &bundle.0);
        for again in [true, false] {
            let answer = self.http.call(&call, until).await?;
            if answer.ok() {
                return uploaded(&self.http, &call, &answer);
            }
            if !(answer.status == 403 && answer.says("already exists")) {
                return Err(bad_certificate(&self.http, &call, &answer));
            }
            if self
                .stored(id, until)
                .await?
                .is_some_and(|stored| stored.has_private)
            {
                return Ok(id.to_owned());
            }
            if !again {
                return Err(self.http.refused(&call, &answer));
            }
            // Uploaded once without its key: it blocks the whole one and serves nobody.
            self.unstore(id, until).await?;
        }
        Ok(id.to_owned())
    }
}

/// The id that a certificate got.
pub(super) fn uploaded(http: &Http, call: &Call<'_>, answer: &Answer) -> Result<String, TykError> {
    let value = http.json(call, answer)?;
    match value.get("id").and_then(Value::as_str) {
        Some(id) => Ok(id.to_owned()),
        None => Err(http.answered(Failing, call, answer, "; there is no id in it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        let (body, listed) = (body.into(), None);
        Answer { status, body, listed }
    }

    #[test]
    fn only_tyks_own_word_says_that_there_is_nothing() {
        for body in [
            json!({"status": "error", "message": "API not found"}),
            json!({"Status": "Error", "Message": "Not found", "Meta": null}),
        ] {
            assert!(missing(&answer(404, body.to_string())), "{body}");
            assert!(!missing(&answer(400, body.to_string())), "{body}");
        }
        for body in [
            // Proxies and clouds in front of it, without a route to it
            r#"{"message":"no Route matched with those values","request_id":"4f6c"}"#,
            r#"{"message":"Not Found"}"#,
            r#"{"status":404,"message":"default backend"}"#,
            r#"{"status":"error"}"#,
            r#"["error"]"#,
            "404 page not found",
            "",
        ] {
            assert!(!missing(&answer(404, body)), "{body}");
        }
    }

    #[test]
    fn a_certificate_that_tyk_cannot_read_says_nothing_about_the_credential() {
        let access = Access {
            url: "http://tyk".to_owned(),
            org: String::new(),
            credential: "c".to_owned(),
            insecure: false,
        };
        let pools = Pools::new(None, super::super::http::Limits::default()).unwrap();
        let may_write: MayWrite = std::sync::Arc::new(|| true);
        let gateway = Gateway::new(&pools, &access, may_write, TykMeter::default()).unwrap();
        let call = Call::new("upload_certificate", Method::POST, CERTIFICATES);
        let class = |message: &str| {
            let body = json!({"status": "error", "message": message}).to_string();
            bad_certificate(&gateway.http, &call, &answer(403, body)).class
        };
        // Anybody who may write a TLS Secret may bring these about, and all routes share the connection
        for message in [
            "x509: invalid authority key identifier",
            "x509: certificate signed by unknown authority",
            "tls: private key type does not match public key type",
            "certificate is expired",
            "the certificate authority is not known",
        ] {
            assert_eq!(class(message), Refused, "{message}");
        }
        for message in [
            "Attempted administrative access with invalid or missing key!",
            "Not authorised",
            "Unauthorized",
        ] {
            assert_eq!(class(message), super::super::TykErrorClass::Denied, "{message}");
        }
    }
}
