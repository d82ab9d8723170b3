//! Hosts as a real Garage resolves them.

use std::collections::{BTreeMap, BTreeSet};

use routewright::exposure::hostname::{ResolutionRow, resolution_table, resolve};
use routewright::garage::admin::{BucketUpdate, GarageAdmin, WebsiteUpdate};
use routewright::garage::bucket::website_documents;
use routewright::garage::testing::GarageWorld;

use super::real::RealGarage;

#[tokio::test]
async fn hosts_resolve_as_the_exposure_rules_assume() {
    // Given the observations that the rules rest on, by root domain and by aliases of the one bucket,
    let mut roots: BTreeMap<&str, BTreeMap<&[&str], Vec<ResolutionRow>>> = BTreeMap::new();
    for row in resolution_table() {
        roots
            .entry(row.root_domain)
            .or_default()
            .entry(row.aliases)
            .or_default()
            .push(row);
    }
    let mut checked = 0;
    for (root, buckets) in roots {
        let Some(garage) = RealGarage::start(root).await else {
            return;
        };
        for (aliases, rows) in buckets {
            let id = garage.admin.create_bucket(aliases[0]).await.unwrap().id;
            for alias in &aliases[1..] {
                garage.admin.add_alias(&id, alias).await.unwrap();
            }
            let website = Some(WebsiteUpdate::Enable(website_documents(None, None)));
            let update = BucketUpdate {
                website,
                quotas: None,
            };
            garage.admin.update_bucket(&id, &update).await.unwrap();
            garage.put_object(&id).await;
            // when each host is asked for, then a real Garage answers what was written down.
            for row in rows {
                assert_eq!(garage.check(row.host).await, row.status, "{row:?}");
                checked += 1;
            }
            garage.remove_object(&id).await;
            garage.admin.delete_bucket(&id).await.unwrap();
        }
    }
    println!("{checked} hosts checked");
    assert_eq!(checked, resolution_table().len());
}

/// Hosts made from parts that are right, nearly right and wrong, each once.
fn generated_hosts() -> BTreeSet<String> {
    let names = [
        "site",
        "SITE",
        "a.b",
        "www",
        "www.example.com",
        "other.net",
        "xsite",
        "b",
        "-",
        "",
    ];
    let roots = [
        "example.com",
        "Example.COM",
        "example.com.",
        "xexample.com",
        "com",
        "example.org",
        "",
    ];
    let mut hosts = BTreeSet::new();
    for name in names {
        for joint in ["", ".", ".."] {
            for root in roots {
                for port in ["", ":80"] {
                    hosts.insert(format!("{name}{joint}{root}{port}"));
                }
            }
        }
    }
    // Without a name there is no host to resolve, only a malformed request.
    hosts.retain(|host| !host.is_empty() && !host.starts_with(':'));
    hosts
}

#[tokio::test]
async fn generated_hosts_resolve_as_the_exposure_rules_say() {
    // Given a bucket with aliases beside, under and equal to the root domain,
    const ROOT: &str = ".example.com";
    const ALIASES: [&str; 4] = ["site", "a.b", "www.example.com", "other.net"];
    let Some(garage) = RealGarage::start(ROOT).await else {
        return;
    };
    let id = garage.admin.create_bucket(ALIASES[0]).await.unwrap().id;
    for alias in &ALIASES[1..] {
        garage.admin.add_alias(&id, alias).await.unwrap();
    }
    let update = BucketUpdate {
        website: Some(WebsiteUpdate::Enable(website_documents(None, None))),
        quotas: None,
    };
    garage.admin.update_bucket(&id, &update).await.unwrap();
    garage.put_object(&id).await;
    // when hosts of all shapes are asked for, then Garage serves those that the rules resolve to an alias, and only those.
    let (mut served, mut unknown) = (0, 0);
    for host in generated_hosts() {
        let expected = match resolve(&host, ROOT) {
            None => 400,
            Some(alias) if ALIASES.contains(&alias.as_str()) => 200,
            Some(_) => 404,
        };
        assert_eq!(garage.check(&host).await, expected, "{host}");
        if expected == 200 {
            served += 1;
        } else {
            unknown += 1;
        }
    }
    println!("{} generated hosts checked, {served} served", served + unknown);
    assert!(served > 10 && unknown > 100, "{served} {unknown}");
}
