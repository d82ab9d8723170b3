//! Values of a bucket: aliases, quotas, documents, usage figures; what is valid, what differs, what is worth showing.

use std::time::Duration;

use routewright_crds::bucket::QuotaUsage;
use sha2::{Digest, Sha256};

use crate::hex::hex;

use super::super::admin::{BucketInfo, BucketQuotas, BucketUpdate, WebsiteDocuments, WebsiteUpdate};
use super::{
    COSI_RESERVATION_PREFIX, DEFAULT_INDEX_DOCUMENT, RESERVATION_PREFIX, Refusal, RefusalReason, Size,
    USAGE_INTERVAL, Wanted,
};

/// The alias under which the bucket of one object is created: `garage-rsv-` and 32 hexadecimal digits that only this
/// incarnation of the object has.
#[must_use]
pub fn reservation_alias(namespace: &str, name: &str, uid: &str) -> String {
    let digest = Sha256::digest([namespace, name, uid].join("\0"));
    format!("{RESERVATION_PREFIX}{}", hex(digest.iter().take(16)))
}

/// Whether an alias is one under which buckets are only created, never reached.
#[must_use]
pub fn is_reservation(alias: &str) -> bool {
    alias.starts_with(RESERVATION_PREFIX) || alias.starts_with(COSI_RESERVATION_PREFIX)
}

/// Whether Garage takes `alias` as a global alias; if not, why.
///
/// # Errors
/// What is wrong, to be put behind the alias and a colon.
pub fn check_alias(alias: &str) -> Result<(), &'static str> {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = alias.as_bytes();
    if !(3..=63).contains(&bytes.len()) {
        return Err("must have 3 to 63 characters");
    }
    if !bytes
        .iter()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-'))
    {
        return Err("only lower-case letters, digits, '.' and '-' are allowed");
    }
    if !edge(bytes.first()) || !edge(bytes.last()) {
        return Err("must begin and end with a letter or a digit");
    }
    if alias.parse::<std::net::IpAddr>().is_ok() {
        return Err("must not be an IP address");
    }
    if alias.split('.').any(|label| label.starts_with("xn--")) {
        return Err("labels that begin with 'xn--' are not allowed");
    }
    if alias.ends_with("-s3alias") {
        return Err("must not end with '-s3alias'");
    }
    if is_reservation(alias) {
        return Err("must not begin with 'garage-rsv-' or 'cosi-rsv-', which mark buckets being created");
    }
    Ok(())
}

pub(super) fn wanted_alias(wanted: &Wanted) -> Result<&str, Refusal> {
    let (alias, field, hint) = match wanted.global_alias.as_deref().filter(|a| !a.is_empty()) {
        Some(alias) => (alias, "spec.globalAlias", ""),
        None => (wanted.name.as_str(), "metadata.name", "; set spec.globalAlias"),
    };
    check_alias(alias).map(|()| alias).map_err(|fault| Refusal {
        reason: RefusalReason::InvalidAlias,
        field,
        message: format!("{field}: {alias:?} is not a valid bucket alias: {fault}{hint}"),
    })
}

pub(super) fn wanted_quotas(wanted: &Wanted) -> Result<BucketQuotas, Refusal> {
    let refuse = |field: &'static str, what: String| Refusal {
        reason: RefusalReason::InvalidQuota,
        field,
        message: format!("{field}: {what}"),
    };
    let max_size = match &wanted.max_size {
        None => None,
        Some(Size::Bytes(bytes)) => Some(*bytes),
        Some(Size::Bad(text)) => {
            let what = format!("{text:?} is not a size; write a number of bytes, or e.g. 10Gi");
            return Err(refuse("spec.quotas.maxSize", what));
        }
    };
    let max_objects = match wanted.max_objects {
        None => None,
        Some(count) => Some(u64::try_from(count).map_err(|_| {
            refuse(
                "spec.quotas.maxObjects",
                format!("{count} is negative; leave it out for no limit"),
            )
        })?),
    };
    Ok(BucketQuotas {
        max_size,
        max_objects,
    })
}

/// What has to change in Garage, if anything.
pub(super) fn difference(
    info: &BucketInfo,
    website: Option<&WebsiteDocuments>,
    quotas: BucketQuotas,
) -> Option<BucketUpdate> {
    let website = match website {
        None => info.website_access.then_some(WebsiteUpdate::Disable),
        Some(documents) => (!info.website_access || info.website_config.as_ref() != Some(documents))
            .then(|| WebsiteUpdate::Enable(documents.clone())),
    };
    let quotas = (info.quotas != quotas).then_some(quotas);
    (website.is_some() || quotas.is_some()).then_some(BucketUpdate { website, quotas })
}

/// Documents in the form in which Garage stores them: an index document always, no empty error document.
#[must_use]
pub fn website_documents(index: Option<&str>, error: Option<&str>) -> WebsiteDocuments {
    let given = |text: Option<&str>| text.filter(|t| !t.is_empty()).map(str::to_owned);
    WebsiteDocuments {
        index_document: given(index).unwrap_or_else(|| DEFAULT_INDEX_DOCUMENT.to_owned()),
        error_document: given(error),
    }
}

/// Address of the website inside Garage's own naming, without port. Empty when there is none.
pub(super) fn website_url(info: &BucketInfo, alias: &str, web_root: Option<&str>) -> String {
    match web_root.map(|root| root.trim_start_matches('.')) {
        Some(root) if info.website_access && !root.is_empty() => format!("http://{alias}.{root}"),
        _ => String::new(),
    }
}

/// How much a bucket holds and may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in it.
    pub size_bytes: u64,
    /// Bytes allowed; `None` for no limit.
    pub size_limit: Option<u64>,
    /// Objects in it.
    pub object_count: u64,
    /// Objects allowed; `None` for no limit.
    pub object_limit: Option<u64>,
}

impl Usage {
    pub(super) fn of(info: &BucketInfo) -> Self {
        Self {
            size_bytes: info.bytes,
            size_limit: info.quotas.max_size,
            object_count: info.objects,
            object_limit: info.quotas.max_objects,
        }
    }

    /// Share of the size limit in per cent, rounded down.
    #[must_use]
    pub fn size_percent(&self) -> Option<u32> {
        self.size_limit.map(|limit| percent(self.size_bytes, limit))
    }

    /// Share of the object limit in per cent, rounded down.
    #[must_use]
    pub fn object_percent(&self) -> Option<u32> {
        self.object_limit.map(|limit| percent(self.object_count, limit))
    }

    /// As it stands in the status; larger figures than the status can hold are written as the largest.
    #[must_use]
    pub fn to_status(&self) -> QuotaUsage {
        let wide = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let narrow = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        QuotaUsage {
            size_bytes: Some(wide(self.size_bytes)),
            size_limit: self.size_limit.map(wide),
            size_percent: self.size_percent().map(narrow),
            object_count: Some(wide(self.object_count)),
            object_limit: self.object_limit.map(wide),
            object_percent: self.object_percent().map(narrow),
        }
    }

    /// What a status shows; `None` if it shows no figures.
    #[must_use]
    pub fn from_status(shown: &QuotaUsage) -> Option<Self> {
        let count = |n: i64| u64::try_from(n).ok();
        Some(Self {
            size_bytes: shown.size_bytes.and_then(count)?,
            size_limit: shown.size_limit.and_then(count),
            object_count: shown.object_count.and_then(count)?,
            object_limit: shown.object_limit.and_then(count),
        })
    }

    /// `size_bytes` for people: `0 B`, `1.5 MiB`.
    #[must_use]
    pub fn size(&self) -> String {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut tenths = u128::from(self.size_bytes) * 10;
        let mut unit = None;
        for name in UNITS {
            if tenths < 10 * 1024 {
                break;
            }
            tenths /= 1024;
            unit = Some(name);
        }
        match unit {
            None => format!("{} B", self.size_bytes),
            Some(unit) => format!("{}.{} {unit}", tenths / 10, tenths % 10),
        }
    }
}

fn percent(used: u64, limit: u64) -> u32 {
    if limit == 0 {
        // Nothing is allowed, so whatever there is fills it.
        return 100;
    }
    u32::try_from(u128::from(used) * 100 / u128::from(limit)).unwrap_or(u32::MAX)
}

/// Which usage figures the status shows: a new limit at once, new counts only when one of them moved by at least 1 %
/// of what is shown, and no sooner than [`USAGE_INTERVAL`] after the last change.
///
/// `since_shown` is the time since the shown figures were written; `None` when this process does not know it.
#[must_use]
pub fn usage_to_publish(shown: Option<Usage>, since_shown: Option<Duration>, fresh: Usage) -> Usage {
    let Some(shown) = shown else { return fresh };
    if (shown.size_limit, shown.object_limit) != (fresh.size_limit, fresh.object_limit) {
        return fresh;
    }
    let moved = |from: u64, to: u64| {
        let by = from.abs_diff(to);
        by > 0 && u128::from(by) * 100 >= u128::from(from)
    };
    let worth_it = moved(shown.size_bytes, fresh.size_bytes) || moved(shown.object_count, fresh.object_count);
    let due = since_shown.is_none_or(|since| since >= USAGE_INTERVAL);
    if worth_it && due { fresh } else { shown }
}
