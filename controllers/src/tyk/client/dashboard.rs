//! The API of Tyk Dashboard. POST creates, PUT updates, and it tells its gateways by itself. Written to its published
//! description and to what other clients of it do; no real Dashboard was ever asked.

use std::io::Read;

use async_trait::async_trait;
use reqwest::{Method, header::AUTHORIZATION};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{translate::EXTENSION, translate::stamp::HASH, verdict::Mode},
    Bundle, Listed, Signed, StoredCertificate, TykApi, TykError,
    TykErrorClass::{Failing, Refused},
    gateway::{bad_certificate, document, missing, stored, uploaded},
    http::{Access, Answer, Call, Deadline, Http, LIST, MayWrite, Pools},
};
use crate::telemetry::tyk::TykMeter;

const APIS: &str = "/api/apis/oas";
const ALL: &str = "/api/apis";
const CERTIFICATES: &str = "/api/certs";

/// A client of a Dashboard, for the organisation of its user.
pub struct Dashboard {
    http: Http,
    /// Users and groups.
    owners: (Vec<String>, Vec<String>),
}

/// How often a creation is tried whose answer did not come.
const CREATIONS: u32 = 3;

impl Dashboard {
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
        Ok(Self {
            http: Http::new(pools, access, AUTHORIZATION, Mode::Dashboard, may_write, meter)?,
            owners: <_>::default(),
        })
    }

    /// What it creates or updates belongs to these users and groups, by their ids; without any, to everybody.
    #[must_use]
    pub fn owned_by(mut self, users: Vec<String>, groups: Vec<String>) -> Self {
        self.owners = (users, groups);
        self
    }

    async fn unstore(&self, id: &str, until: Deadline) -> Result<(), TykError> {
        let path = format!("{CERTIFICATES}/{id}");
        let remove = Call::new("delete_certificate", Method::DELETE, path);
        let answer = self.http.call(&remove, until).await?;
        // A certificate is missed with 404 and words of its own.
        if answer.ok() || unknown(&answer) {
            return Ok(());
        }
        Err(self.http.refused(&remove, &answer))
    }

    /// Gives an API to the users and groups of the context. A document has no place for them.
    async fn hand_over(&self, id: &str, until: Deadline) -> Result<(), TykError> {
        let (users, groups) = &self.owners;
        if users.is_empty() && groups.is_empty() {
            return Ok(());
        }
        let body = json!({"userIds": users, "userGroupIds": groups}).to_string();
        let call = Call::new("access", Method::PUT, format!("{ALL}/{id}/access"))
            .body("application/json", body.as_bytes());
        let answer = self.http.call(&call, until).await?;
        if answer.ok() {
            return Ok(());
        }
        let hint = "; user_owners and user_group_owners of the OperatorContext could not be set: they are ids, and                     ownership has to be enabled in the Dashboard";
        Err(self.http.answered(Refused, &call, &answer, hint))
    }

    async fn fetch(&self, id: &str, until: Deadline) -> Result<Option<Value>, TykError> {
        let call = Call::new("get", Method::GET, format!("{APIS}/{id}"));
        let answer = self.http.call(&call, until).await?;
        if answer.ok() {
            return document(&self.http, &call, &answer).map(Some);
        }
        if unknown(&answer) {
            return Ok(None);
        }
        Err(self.http.refused(&call, &answer))
    }

    /// POST. After a failure that leaves open what was done, the id is asked for before it is repeated.
    async fn create(&self, id: &str, wanted: &Value, until: Deadline) -> Result<(), TykError> {
        let body = wanted.to_string();
        let mut call = Call::new("create", Method::POST, APIS).body("application/json", body.as_bytes());
        call.repeat = false;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.http.call(&call, until).await {
                Ok(answer) if answer.ok() => return self.created(id, &call, &answer, until).await,
                Ok(answer) if answer.status == 409 => {
                    return match self.fetch(id, until).await? {
                        Some(found) if equal(&found, wanted) => Ok(()),
                        _ => Err(self.http.answered(
                            Failing,
                            &call,
                            &answer,
                            "; it was not there a moment ago and is looked at again",
                        )),
                    };
                }
                Ok(answer) => return Err(self.not_taken(&call, &answer)),
                Err(error) if !error.passes() || tries >= CREATIONS => return Err(error),
                Err(error) => match self.fetch(id, until).await {
                    Ok(None) => {}
                    Ok(Some(found)) if equal(&found, wanted) => return Ok(()),
                    // It exists and is another one: whose, is for others to look at.
                    Ok(Some(_)) | Err(_) => return Err(error),
                },
            }
        }
    }

    /// Whether the Dashboard took the id that was asked for. Old ones gave their own.
    async fn created(
        &self,
        id: &str,
        call: &Call<'_>,
        answer: &Answer,
        until: Deadline,
    ) -> Result<(), TykError> {
        let value = self.http.json(call, answer)?;
        let given = |key: &str| value.get(key).and_then(Value::as_str);
        if given("ID") == Some(id) || given("Meta") == Some(id) || self.fetch(id, until).await?.is_some() {
            return Ok(());
        }
        if let Some(other) = given("ID").or(given("Meta")).filter(|other| plain(other)) {
            let remove = Call::new("delete", Method::DELETE, format!("{APIS}/{other}"));
            self.http.call(&remove, until).await?;
        }
        let hint = format!("; the API got another id than {id}: this Dashboard is too old");
        Err(self.http.answered(Refused, call, answer, &hint))
    }

    async fn update(&self, id: &str, wanted: &Value, until: Deadline) -> Result<(), TykError> {
        let Some(found) = self.fetch(id, until).await? else {
            return self.create(id, wanted, until).await;
        };
        let body = carried(wanted, &found).to_string();
        let call = Call::new("update", Method::PUT, format!("{APIS}/{id}"))
            .body("application/json", body.as_bytes());
        let answer = self.http.call(&call, until).await?;
        if answer.ok() {
            return Ok(());
        }
        Err(self.not_taken(&call, &answer))
    }

    fn not_taken(&self, call: &Call<'_>, answer: &Answer) -> TykError {
        if answer.status == 403 && answer.says("same url") {
            let hint = "; set enable_duplicate_slugs to true in the Dashboard's configuration: routes of several \
                        hosts share a path";
            return self.http.answered(Refused, call, answer, hint);
        }
        self.http.refused(call, answer)
    }
}

/// An id that can stand in a path.
fn plain(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// 404, or the 400 that the Dashboard has for it.
fn unknown(answer: &Answer) -> bool {
    missing(answer) || (answer.status == 400 && answer.says("could not retrieve"))
}

/// The same document, by the mark that it was written with.
fn equal(found: &Value, wanted: &Value) -> bool {
    let hash = |value: &Value| value.get(HASH).and_then(Value::as_str).map(str::to_owned);
    hash(found).is_some() && hash(found) == hash(wanted)
}

/// What the Dashboard filled in and may want back: its own id of the document, and the organisation.
fn carried(wanted: &Value, found: &Value) -> Value {
    let mut whole = wanted.clone();
    let info = |value: &Value, key: &str| value.get(EXTENSION)?.get("info")?.get(key).cloned();
    for key in ["dbId", "orgId"] {
        let Some(value) = info(found, key) else {
            continue;
        };
        let place = whole
            .get_mut(EXTENSION)
            .and_then(|extension| extension.get_mut("info"))
            .and_then(Value::as_object_mut);
        if let Some(info) = place {
            info.entry(key).or_insert(value);
        }
    }
    whole
}

/// What is read of a list.
#[derive(Deserialize)]
struct Page {
    apis: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "api_definition")]
    definition: Option<Definition>,
}

#[derive(Deserialize)]
struct Definition {
    #[serde(rename = "api_id")]
    id: Option<String>,
}

fn read_list(list: &mut dyn Read) -> Result<Vec<Listed>, serde_json::Error> {
    let page: Page = serde_json::from_reader(list)?;
    let ids = page
        .apis
        .into_iter()
        .flatten()
        .filter_map(|api| api.definition?.id);
    let listed = |id| Listed {
        id,
        signed: Signed::NotShown,
    };
    Ok(ids.map(listed).collect())
}

#[async_trait]
impl TykApi for Dashboard {
    fn mode(&self) -> Mode {
        Mode::Dashboard
    }

    async fn get(&self, id: &str) -> Result<Option<Value>, TykError> {
        self.fetch(id, self.http.deadline()).await
    }

    async fn list(&self) -> Result<Vec<Listed>, TykError> {
        // Page -2 is everything. It shows the definitions behind the documents, which have no owner key.
        let mut call = Call::new("list", Method::GET, ALL).query(&[("p", "-2")]);
        (call.long, call.most) = (true, Some(LIST));
        call.parse = Some(read_list);
        let answer = self.http.call(&call, self.http.deadline()).await?;
        if !answer.ok() {
            return Err(self.http.refused(&call, &answer));
        }
        answer
            .listed
            .ok_or_else(|| self.http.error(Failing, &call, "the answer is no list of APIs"))
    }

    async fn put(&self, id: &str, document: &Value, exists: bool) -> Result<(), TykError> {
        let until = self.http.deadline();
        if exists {
            // First: an update that nobody sees to the end is made again.
            self.hand_over(id, until).await?;
            return self.update(id, document, until).await;
        }
        self.create(id, document, until).await?;
        let handed = self.hand_over(id, until).await;
        if handed.is_err() {
            // What stands as it should is not looked at for its owners again, so it must not stand without them.
            let remove = Call::new("delete", Method::DELETE, format!("{APIS}/{id}"));
            self.http.call(&remove, until).await?;
        }
        handed
    }

    async fn delete(&self, id: &str) -> Result<bool, TykError> {
        let call = Call::new("delete", Method::DELETE, format!("{APIS}/{id}"));
        let answer = self.http.call(&call, self.http.deadline()).await?;
        if answer.ok() || unknown(&answer) {
            return Ok(true);
        }
        Err(self.http.refused(&call, &answer))
    }

    async fn reload(&self) -> Result<(), TykError> {
        Ok(())
    }

    async fn certificate(&self, id: &str) -> Result<Option<StoredCertificate>, TykError> {
        let call = Call::new("get_certificate", Method::GET, format!("{CERTIFICATES}/{id}"));
        let answer = self.http.call(&call, self.http.deadline()).await?;
        stored(&self.http, &call, &answer)
    }

    async fn replace(&self, id: &str, bundle: &Bundle) -> Result<String, TykError> {
        self.unstore(id, self.http.deadline()).await?;
        self.upload(id, bundle).await
    }

    async fn upload(&self, id: &str, bundle: &Bundle) -> Result<String, TykError> {
        let until = self.http.deadline();
        let (content_type, body) = form(id, &bundle.0);
        let call = Call::new("upload_certificate", Method::POST, CERTIFICATES).body(&content_type, &body);
        for again in [true, false] {
            let answer = self.http.call(&call, until).await?;
            if answer.ok() {
                return uploaded(&self.http, &call, &answer);
            }
            // The code of a duplicate is 404, of all things.
            if !answer.says("already exists") {
                return Err(bad_certificate(&self.http, &call, &answer));
            }
            let ask = Call::new("get_certificate", Method::GET, format!("{CERTIFICATES}/{id}"));
            let found = stored(&self.http, &ask, &self.http.call(&ask, until).await?)?;
            if found.is_some_and(|stored| stored.has_private) {
                return Ok(id.to_owned());
            }
            if !again {
                return Err(self.http.refused(&call, &answer));
            }
            self.unstore(id, until).await?;
        }
        Ok(id.to_owned())
    }
}

/// A form with one file. The boundary is made of the certificate's id, which no PEM holds.
fn form(id: &str, pem: &[u8]) -> (String, Vec<u8>) {
    // RFC 2046 allows 70 characters.
    let tail: String = id
        .chars()
        .rev()
        .filter(char::is_ascii_alphanumeric)
        .take(32)
        .collect();
    let boundary = format!("routewright-{tail}");
    let mut body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"cert\"; filename=\"cert.pem\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(pem);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dashboard_filled_in_is_carried_and_nothing_else() {
        let wanted = json!({EXTENSION: {"info": {"id": "gwapi-1", "orgId": "mine"}}});
        let found =
            json!({EXTENSION: {"info": {"id": "gwapi-1", "dbId": "66", "orgId": "theirs", "name": "x"}}});
        assert_eq!(
            carried(&wanted, &found),
            json!({EXTENSION: {"info": {"id": "gwapi-1", "orgId": "mine", "dbId": "66"}}})
        );
    }
}
