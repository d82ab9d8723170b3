//! Every row of the decision, and the small rules beside it.

use super::super::admin::{BucketQuotas, WebsiteUpdate};
use super::values::website_url;
use super::*;

const ID: &str = "52aeafb07876d25151168a49e34186f554365aead88fe16d4fa0e57e3898cc45";
const OTHER: &str = "34d9e4533285f2d1136ec9ef28238ab8eeb5104013a15327dad7456a8bffcdbf";

fn id(text: &str) -> BucketId {
    BucketId::parse(text).unwrap()
}

fn wanted() -> Wanted {
    Wanted {
        namespace: "team".into(),
        name: "site".into(),
        uid: "7f3c".into(),
        ..Wanted::default()
    }
}

fn own() -> String {
    reservation_alias("team", "site", "7f3c")
}

fn info(aliases: &[&str]) -> BucketInfo {
    BucketInfo {
        id: id(ID),
        global_aliases: aliases.iter().map(|a| (*a).to_owned()).collect(),
        website_access: false,
        website_config: None,
        objects: 0,
        bytes: 0,
        quotas: BucketQuotas::default(),
        created: Some("2026-11-29T22:10:29.731Z".into()),
    }
}

fn found(aliases: &[&str]) -> Lookup {
    Lookup::Found(info(aliases))
}

fn recorded(aliases: &[&str]) -> Known {
    Known {
        bucket_id: Some(ID.into()),
        reservation: Some(own()),
        aliases: aliases.iter().map(|a| (*a).to_owned()).collect(),
        ..Known::default()
    }
}

fn reserved() -> Known {
    Known {
        reservation: Some(own()),
        ..Known::default()
    }
}

fn seen(by_id: Lookup) -> Observed {
    Observed {
        by_id,
        ..Observed::default()
    }
}

fn refused(step: Step) -> (RefusalReason, &'static str, String) {
    match step {
        Step::End(End::Refuse(r) | End::Stay(r)) => (r.reason, r.field, r.message),
        other => panic!("not refused: {other:?}"),
    }
}

fn done(step: Step) -> StatusProjection {
    match step {
        Step::End(End::Done(status)) => *status,
        other => panic!("not done: {other:?}"),
    }
}

#[test]
fn creating_goes_step_by_step() {
    let absent = Lookup::Absent;
    let by_alias = |by_alias: Lookup| Observed {
        by_alias,
        ..Observed::default()
    };
    let reservation = |by_reservation: Lookup, by_alias: Lookup| Observed {
        by_reservation,
        by_alias,
        ..Observed::default()
    };
    for (known, observed, step) in [
        // nothing written down: is the alias free?
        (
            Known::default(),
            Observed::default(),
            Step::Look(Question::ByAlias("site".into())),
        ),
        (
            Known::default(),
            by_alias(absent.clone()),
            Step::PersistReservation { alias: own() },
        ),
        // written down: was it created already?
        (
            reserved(),
            Observed::default(),
            Step::Look(Question::ByReservation(own())),
        ),
        (
            reserved(),
            reservation(absent.clone(), Lookup::Unknown),
            Step::Look(Question::ByAlias("site".into())),
        ),
        (
            reserved(),
            reservation(absent.clone(), absent),
            Step::Create { alias: own() },
        ),
        // created: record it
        (
            reserved(),
            reservation(found(&[&own()]), Lookup::Unknown),
            Step::PersistBucketId { id: id(ID) },
        ),
        // recorded: look at it, remember the alias, bind it, drop the reservation
        (
            recorded(&[]),
            Observed::default(),
            Step::Look(Question::ById(id(ID))),
        ),
        (
            recorded(&[]),
            seen(found(&[&own()])),
            Step::PersistAliases {
                aliases: vec!["site".into()],
            },
        ),
        (
            recorded(&["site"]),
            seen(found(&[&own()])),
            Step::AddAlias {
                id: id(ID),
                alias: "site".into(),
            },
        ),
        (
            recorded(&["site"]),
            seen(found(&[&own(), "site"])),
            Step::DropReservation {
                id: id(ID),
                alias: own(),
            },
        ),
    ] {
        assert_eq!(next(&wanted(), &known, &observed), step, "{known:?} {observed:?}");
    }
    assert_eq!(
        done(next(&wanted(), &recorded(&["site"]), &seen(found(&["site"])))).phase,
        Phase::Ready
    );
}

#[test]
fn a_reservation_alias_of_somebody_else_on_the_object_is_worth_nothing() {
    // Given an annotation that names the reservation of another object,
    let stolen = Known {
        reservation: Some(reservation_alias("team", "other", "1")),
        ..Known::default()
    };
    let observed = Observed {
        by_alias: Lookup::Absent,
        ..Observed::default()
    };
    // then it is not looked for, and written over.
    assert_eq!(
        next(&wanted(), &stolen, &observed),
        Step::PersistReservation { alias: own() }
    );
}

#[test]
fn an_alias_of_another_bucket_is_refused_before_anything_is_written() {
    let observed = Observed {
        by_alias: found(&["site"]),
        ..Observed::default()
    };
    let (reason, field, message) = refused(next(&wanted(), &Known::default(), &observed));
    assert_eq!((reason, field), (RefusalReason::AliasTaken, "metadata.name"));
    assert!(
        message.contains("\"site\" belongs to another bucket") && message.contains("spec.bucketId"),
        "{message}"
    );
    assert!(
        !message.contains(ID),
        "the id of another's bucket is told: {message}"
    );

    let named = Wanted {
        global_alias: Some("www".into()),
        ..wanted()
    };
    assert_eq!(
        refused(next(&named, &Known::default(), &observed)).1,
        "spec.globalAlias"
    );
}

#[test]
fn an_alias_that_is_taken_in_between_is_refused_too() {
    let observed = Observed {
        alias_taken: true,
        ..seen(found(&[&own()]))
    };
    assert_eq!(
        refused(next(&wanted(), &recorded(&["site"]), &observed)).0,
        RefusalReason::AliasTaken
    );
}

#[test]
fn a_new_alias_is_bound_before_the_old_one_goes() {
    let www = Wanted {
        global_alias: Some("www".into()),
        ..wanted()
    };
    for (known, aliases, step) in [
        (
            &["site"][..],
            &["site"][..],
            Step::PersistAliases {
                aliases: vec!["site".into(), "www".into()],
            },
        ),
        (
            &["site", "www"],
            &["site"],
            Step::AddAlias {
                id: id(ID),
                alias: "www".into(),
            },
        ),
        (
            &["site", "www"],
            &["site", "www"],
            Step::RemoveOldAlias {
                id: id(ID),
                alias: "site".into(),
            },
        ),
        (
            &["site", "www"],
            &["www"],
            Step::PersistAliases {
                aliases: vec!["www".into()],
            },
        ),
        // what is remembered and not there need not be remembered
        (
            &["gone", "site"],
            &["site"],
            Step::PersistAliases {
                aliases: vec!["site".into(), "www".into()],
            },
        ),
    ] {
        assert_eq!(
            next(&www, &recorded(known), &seen(found(aliases))),
            step,
            "{known:?} {aliases:?}"
        );
    }
}

#[test]
fn aliases_that_others_gave_the_bucket_stay() {
    let status = done(next(
        &wanted(),
        &recorded(&["site"]),
        &seen(found(&["aaa", "site", "zzz"])),
    ));
    assert_eq!(status.global_alias, "site", "the wanted one, not the first one");
}

#[test]
fn adopting_needs_the_id_and_nothing_else() {
    let adopt = Wanted {
        bucket_id: Some(ID.into()),
        ..wanted()
    };
    let look = Step::Look(Question::ById(id(ID)));
    assert_eq!(next(&adopt, &Known::default(), &Observed::default()), look);
    assert_eq!(
        next(&adopt, &Known::default(), &seen(found(&["theirs"]))),
        Step::PersistBucketId { id: id(ID) }
    );
    let (reason, field, _) = refused(next(&adopt, &Known::default(), &seen(Lookup::Absent)));
    assert_eq!((reason, field), (RefusalReason::BucketNotFound, "spec.bucketId"));
}

#[test]
fn a_bucket_that_somebody_has_or_makes_is_not_adopted() {
    let adopt = Wanted {
        bucket_id: Some(ID.into()),
        ..wanted()
    };
    let claimed = Known {
        claimed_by: Some("other/shop".into()),
        ..Known::default()
    };
    let (reason, _, message) = refused(next(&adopt, &claimed, &seen(found(&["theirs"]))));
    assert_eq!(reason, RefusalReason::BucketClaimed);
    assert!(message.contains("other/shop"), "{message}");

    let being_made = reservation_alias("other", "shop", "1");
    let (reason, ..) = refused(next(&adopt, &Known::default(), &seen(found(&[&being_made]))));
    assert_eq!(reason, RefusalReason::BucketClaimed);
    // its own does not stand in the way
    let observed = Observed {
        by_reservation: found(&[&own()]),
        ..seen(found(&[&own()]))
    };
    assert_eq!(
        next(&adopt, &reserved(), &observed),
        Step::PersistBucketId { id: id(ID) }
    );
}

#[test]
fn adopting_after_a_bucket_was_made_removes_the_made_one() {
    let adopt = Wanted {
        bucket_id: Some(OTHER.into()),
        ..wanted()
    };
    assert_eq!(
        next(&adopt, &reserved(), &Observed::default()),
        Step::Look(Question::ByReservation(own()))
    );
    let made = Observed {
        by_reservation: found(&[&own()]),
        ..Observed::default()
    };
    assert_eq!(
        next(&adopt, &reserved(), &made),
        Step::DiscardReserved { id: id(ID) }
    );
    // unless somebody put something in
    let full = Observed {
        not_empty: true,
        ..made
    };
    let (reason, field, message) = refused(next(&adopt, &reserved(), &full));
    assert_eq!((reason, field), (RefusalReason::BucketNotEmpty, "spec.bucketId"));
    assert!(message.contains(&own()), "{message}");
}

#[test]
fn what_the_spec_gets_wrong_is_refused_with_its_field() {
    let text = |t: &str| Some(t.to_owned());
    for (spec, known, reason, field) in [
        (
            Wanted {
                global_alias: text("Not_An_Alias"),
                ..wanted()
            },
            Known::default(),
            RefusalReason::InvalidAlias,
            "spec.globalAlias",
        ),
        (
            Wanted {
                name: "ab".into(),
                ..wanted()
            },
            Known::default(),
            RefusalReason::InvalidAlias,
            "metadata.name",
        ),
        (
            Wanted {
                global_alias: text("garage-rsv-1"),
                ..wanted()
            },
            Known::default(),
            RefusalReason::InvalidAlias,
            "spec.globalAlias",
        ),
        (
            Wanted {
                bucket_id: text("52ae"),
                ..wanted()
            },
            Known::default(),
            RefusalReason::InvalidBucketId,
            "spec.bucketId",
        ),
        (
            Wanted {
                bucket_id: text(OTHER),
                ..wanted()
            },
            recorded(&["site"]),
            RefusalReason::BucketIdChanged,
            "spec.bucketId",
        ),
        (
            wanted(),
            Known {
                bucket_id: text("nonsense"),
                ..Known::default()
            },
            RefusalReason::InvalidBucketId,
            "status.bucketId",
        ),
        (
            Wanted {
                max_size: Some(Size::Bad("10GB".into())),
                ..wanted()
            },
            Known::default(),
            RefusalReason::InvalidQuota,
            "spec.quotas.maxSize",
        ),
        (
            Wanted {
                max_objects: Some(-1),
                ..wanted()
            },
            Known::default(),
            RefusalReason::InvalidQuota,
            "spec.quotas.maxObjects",
        ),
    ] {
        let (found_reason, found_field, message) = refused(next(&spec, &known, &Observed::default()));
        assert_eq!((found_reason, found_field), (reason, field), "{message}");
        assert!(message.starts_with(field), "{message}");
    }
}

#[test]
fn a_lost_bucket_is_not_made_again_behind_ones_back() {
    let (reason, field, message) = refused(next(&wanted(), &recorded(&["site"]), &seen(Lookup::Absent)));
    assert_eq!((reason, field), (RefusalReason::BucketLost, "status.bucketId"));
    assert!(message.contains("no longer exists"), "{message}");
}

#[test]
fn website_and_quotas_travel_in_one_update_and_only_when_they_differ() {
    let documents = |index: &str, error: Option<&str>| website_documents(Some(index), error);
    let on = |c: WebsiteDocuments| BucketInfo {
        website_access: true,
        website_config: Some(c),
        ..info(&["site"])
    };
    let limited = |i: BucketInfo, max_size, max_objects| BucketInfo {
        quotas: BucketQuotas {
            max_size,
            max_objects,
        },
        ..i
    };
    let site = Wanted {
        website: Some(documents("index.html", None)),
        ..wanted()
    };
    let both = Wanted {
        max_size: Some(Size::Bytes(100)),
        ..site.clone()
    };
    let enable = |c| Some(WebsiteUpdate::Enable(c));
    let quotas = |max_size, max_objects| {
        Some(BucketQuotas {
            max_size,
            max_objects,
        })
    };
    let cases = [
        (&site, on(documents("index.html", None)), None),
        (
            &site,
            info(&["site"]),
            Some((enable(documents("index.html", None)), None)),
        ),
        (
            &site,
            on(documents("other.html", None)),
            Some((enable(documents("index.html", None)), None)),
        ),
        (
            &site,
            on(documents("index.html", Some("e"))),
            Some((enable(documents("index.html", None)), None)),
        ),
        (
            &both,
            info(&["site"]),
            Some((enable(documents("index.html", None)), quotas(Some(100), None))),
        ),
        (
            &both,
            on(documents("index.html", None)),
            Some((None, quotas(Some(100), None))),
        ),
        // what is no longer mentioned is undone, both quotas as a pair
        (
            &wanted(),
            limited(on(documents("index.html", None)), Some(5), Some(5)),
            Some((Some(WebsiteUpdate::Disable), quotas(None, None))),
        ),
        (&wanted(), info(&["site"]), None),
    ];
    for (wanted, info, expected) in cases {
        let step = next(wanted, &recorded(&["site"]), &seen(Lookup::Found(info.clone())));
        match expected {
            Some((website, quotas)) => {
                let update = BucketUpdate { website, quotas };
                assert_eq!(step, Step::Update { id: id(ID), update }, "{info:?}");
            }
            None => drop(done(step)),
        }
    }
}

#[test]
fn deleting_removes_what_is_ours_and_nothing_else() {
    let delete = Wanted {
        deletion: Some(Deletion::Delete),
        ..wanted()
    };
    let gone = Step::End(End::Gone);
    let reservation = |by_reservation: Lookup| Observed {
        by_reservation,
        ..Observed::default()
    };
    for (known, observed, step) in [
        (
            recorded(&["site"]),
            Observed::default(),
            Step::Delete { id: id(ID) },
        ),
        // gone; did a creation that was given up happen late?
        (
            recorded(&["site"]),
            seen(Lookup::Absent),
            Step::Look(Question::ByReservation(own())),
        ),
        (
            recorded(&["site"]),
            Observed {
                by_reservation: Lookup::Absent,
                ..seen(Lookup::Absent)
            },
            gone.clone(),
        ),
        (
            recorded(&["site"]),
            Observed {
                by_reservation: found(&[&own()]),
                ..seen(Lookup::Absent)
            },
            Step::Delete { id: id(ID) },
        ),
        // never created
        (Known::default(), Observed::default(), gone.clone()),
        // perhaps created
        (
            reserved(),
            Observed::default(),
            Step::Look(Question::ByReservation(own())),
        ),
        (reserved(), reservation(Lookup::Absent), gone.clone()),
        (
            reserved(),
            reservation(found(&[&own()])),
            Step::Delete { id: id(ID) },
        ),
        // the reservation of somebody else
        (
            Known {
                reservation: Some(reservation_alias("team", "other", "1")),
                ..Known::default()
            },
            Observed::default(),
            gone.clone(),
        ),
        // somebody else has the bucket too
        (
            Known {
                claimed_by: Some("other/shop".into()),
                ..recorded(&["site"])
            },
            Observed::default(),
            gone.clone(),
        ),
    ] {
        assert_eq!(next(&delete, &known, &observed), step, "{known:?} {observed:?}");
    }
    // a wrong spec does not stand in the way of going
    let wrong = Wanted {
        global_alias: Some("Not_An_Alias".into()),
        ..delete.clone()
    };
    assert_eq!(
        next(&wrong, &recorded(&[]), &Observed::default()),
        Step::Delete { id: id(ID) }
    );

    let full = Observed {
        not_empty: true,
        ..Observed::default()
    };
    let step = next(&delete, &recorded(&["site"]), &full);
    assert!(matches!(step, Step::End(End::Stay(_))), "{step:?}");
    let (reason, _, message) = refused(step);
    assert_eq!(reason, RefusalReason::BucketNotEmpty);
    assert!(message.contains("deletionPolicy: Retain"), "{message}");
}

#[test]
fn retaining_asks_garage_nothing() {
    let retain = Wanted {
        deletion: Some(Deletion::Retain),
        ..wanted()
    };
    for known in [Known::default(), reserved(), recorded(&["site"])] {
        assert_eq!(next(&retain, &known, &Observed::default()), Step::End(End::Gone));
    }
}

#[test]
fn the_status_shows_what_garage_has() {
    let bucket = BucketInfo {
        website_access: true,
        website_config: Some(website_documents(None, Some("404.html"))),
        objects: 3,
        bytes: 1536,
        quotas: BucketQuotas {
            max_size: Some(4096),
            max_objects: None,
        },
        ..info(&["site"])
    };
    let wanted = Wanted {
        website: Some(website_documents(None, Some("404.html"))),
        max_size: Some(Size::Bytes(4096)),
        web_root: Some(".web.example.com".into()),
        ..wanted()
    };
    let status = done(next(&wanted, &recorded(&["site"]), &seen(Lookup::Found(bucket))));
    let set: serde_json::Map<String, Value> = status
        .fields(&status.usage)
        .into_iter()
        .filter_map(|(name, field)| match field {
            StatusField::Set(value) => Some((name.to_owned(), value)),
            StatusField::Clear | StatusField::Entries(_) => None,
        })
        .collect();
    insta::assert_json_snapshot!(set, @r#"
    {
      "bucketId": "52aeafb07876d25151168a49e34186f554365aead88fe16d4fa0e57e3898cc45",
      "createdAt": "2026-11-29T22:10:29Z",
      "globalAlias": "site",
      "phase": "Ready",
      "quotaUsage": {
        "objectCount": 3,
        "sizeBytes": 1536,
        "sizeLimit": 4096,
        "sizePercent": 37
      },
      "size": "1.5 KiB",
      "websiteConfig": {
        "errorDocument": "404.html",
        "indexDocument": "index.html"
      },
      "websiteEnabled": true,
      "websiteUrl": "http://site.web.example.com"
    }
    "#);
    // and the type of the API takes it
    let typed: routewright_crds::GarageBucketStatus = serde_json::from_value(Value::Object(set)).unwrap();
    assert_eq!(
        Usage::from_status(&typed.quota_usage.unwrap()),
        Some(status.usage)
    );
}

#[test]
fn the_url_needs_a_website_and_a_root_domain() {
    let on = BucketInfo {
        website_access: true,
        ..info(&["site"])
    };
    for (bucket, root, url) in [
        (&on, Some(".web.example.com"), "http://site.web.example.com"),
        (&on, Some("web.example.com"), "http://site.web.example.com"),
        (&on, Some("."), ""),
        (&on, Some(""), ""),
        (&on, None, ""),
        (&info(&["site"]), Some(".web.example.com"), ""),
    ] {
        assert_eq!(website_url(bucket, "site", root), url, "{root:?}");
    }
}

#[test]
fn phases_follow_the_end_of_a_run() {
    let refusal = Refusal {
        reason: RefusalReason::AliasTaken,
        field: "spec.globalAlias",
        message: String::new(),
    };
    let status = done(next(&wanted(), &recorded(&["site"]), &seen(found(&["site"]))));
    let deleting = Wanted {
        deletion: Some(Deletion::Delete),
        ..wanted()
    };
    let broken = || Err(DriveError::Restless);
    for (run, wanted, known, phase) in [
        (
            Ok(End::Done(Box::new(status))),
            wanted(),
            recorded(&[]),
            Some(Phase::Ready),
        ),
        (
            Ok(End::Refuse(refusal.clone())),
            wanted(),
            Known::default(),
            Some(Phase::Failed),
        ),
        (broken(), wanted(), Known::default(), Some(Phase::Creating)),
        (broken(), wanted(), recorded(&[]), None),
        (
            Ok(End::Stay(refusal)),
            deleting.clone(),
            recorded(&[]),
            Some(Phase::Deleting),
        ),
        (broken(), deleting, recorded(&[]), Some(Phase::Deleting)),
    ] {
        assert_eq!(Phase::after(&run, &wanted, &known), phase, "{run:?}");
    }
}

#[test]
fn aliases_are_those_that_garage_takes() {
    let long = "a".repeat(63);
    for good in [
        "abc",
        "site",
        "www.example.com",
        "a-b",
        "a..b",
        "1.2.3",
        "a1.2.3.4",
        &long,
    ] {
        assert_eq!(check_alias(good), Ok(()), "{good}");
    }
    let too_long = "a".repeat(64);
    for bad in [
        "",
        "ab",
        &too_long,
        "Site",
        "a_b",
        "site/",
        "-abc",
        "abc-",
        ".abc",
        "abc.",
        "1.2.3.4",
        "::1",
        "xn--abc",
        "www.xn--abc",
        "my-s3alias",
        "garage-rsv-00",
        "cosi-rsv-00",
        "süd",
    ] {
        assert!(check_alias(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_reservation_alias_is_one_objects_own() {
    // sha256 of "team\0site\07f3c", first 16 bytes
    assert_eq!(own(), "garage-rsv-97d76c763df200cd905b22a932482693");
    assert_eq!(own().len(), RESERVATION_PREFIX.len() + 32);
    assert_ne!(own(), reservation_alias("team", "site", "7f3d"));
    assert_ne!(
        reservation_alias("a", "bc", "d"),
        reservation_alias("ab", "c", "d")
    );
    assert!(is_reservation(&own()) && is_reservation("cosi-rsv-1") && !is_reservation("site"));
}

#[test]
fn usage_is_shown_when_it_moved_and_not_too_often() {
    let usage = |size_bytes, object_count| Usage {
        size_bytes,
        object_count,
        ..Usage::default()
    };
    let shown = usage(1000, 100);
    let minutes = |m: u64| Some(Duration::from_secs(m * 60));
    for (shown, since, fresh, published) in [
        // nothing shown yet
        (None, None, usage(5, 1), usage(5, 1)),
        // too little
        (Some(shown), minutes(60), usage(1009, 100), shown),
        // enough, but too soon
        (Some(shown), minutes(14), usage(1010, 100), shown),
        // enough and due, in either figure and either direction
        (Some(shown), minutes(15), usage(1010, 100), usage(1010, 100)),
        (Some(shown), minutes(15), usage(990, 100), usage(990, 100)),
        (Some(shown), minutes(15), usage(1000, 101), usage(1000, 101)),
        // the first object of an empty bucket is enough
        (Some(usage(0, 0)), minutes(15), usage(1, 1), usage(1, 1)),
        // after a restart
        (Some(shown), None, usage(2000, 100), usage(2000, 100)),
        (Some(shown), None, usage(1001, 100), shown),
    ] {
        assert_eq!(
            usage_to_publish(shown, since, fresh),
            published,
            "{shown:?} {since:?} {fresh:?}"
        );
    }
    // a new limit shows at once
    let limited = Usage {
        size_limit: Some(5000),
        ..shown
    };
    assert_eq!(usage_to_publish(Some(shown), minutes(0), limited), limited);
}

#[test]
fn figures_are_for_people_and_never_overflow() {
    let size = |size_bytes| {
        Usage {
            size_bytes,
            ..Usage::default()
        }
        .size()
    };
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 30, "1.0 GiB"),
        (u64::MAX, "15.9 EiB"),
    ] {
        assert_eq!(size(bytes), text);
    }
    let most = Usage {
        size_bytes: u64::MAX,
        size_limit: Some(1),
        object_count: 5,
        object_limit: Some(0),
    };
    assert_eq!(
        (most.size_percent(), most.object_percent()),
        (Some(u32::MAX), Some(100))
    );
    let status = most.to_status();
    assert_eq!(
        (status.size_bytes, status.size_percent),
        (Some(i64::MAX), Some(i32::MAX))
    );
}

#[test]
fn the_object_is_read_as_it_is_meant() {
    let bucket = |spec: Value, meta: Value| -> GarageBucket {
        let mut metadata = serde_json::json!({ "name": "site", "namespace": "team", "uid": "7f3c" });
        metadata
            .as_object_mut()
            .unwrap()
            .extend(meta.as_object().unwrap().clone());
        serde_json::from_value(serde_json::json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
            "metadata": metadata, "spec": spec, "status": { "bucketId": ID },
        }))
        .unwrap()
    };
    let full = bucket(
        serde_json::json!({
            "clusterRef": { "name": "garage" }, "globalAlias": "www",
            "website": { "enabled": true, "errorDocument": "" },
            "quotas": { "maxSize": "1Ki", "maxObjects": 3 },
        }),
        serde_json::json!({ "annotations": {
            RESERVATION_ANNOTATION: own(), ALIASES_ANNOTATION: "site, www,",
        } }),
    );
    assert_eq!(
        Wanted::of(&full, Some(".web.example.com")),
        Wanted {
            global_alias: Some("www".into()),
            website: Some(website_documents(None, None)),
            max_size: Some(Size::Bytes(1024)),
            max_objects: Some(3),
            web_root: Some(".web.example.com".into()),
            ..wanted()
        }
    );
    assert_eq!(Known::of(&full), recorded(&["site", "www"]));

    let bare = bucket(
        serde_json::json!({ "clusterRef": { "name": "garage" } }),
        serde_json::json!({}),
    );
    assert_eq!(Wanted::of(&bare, None), wanted());
    let off = bucket(
        serde_json::json!({
            "clusterRef": { "name": "garage" }, "website": { "enabled": false, "indexDocument": "index.html" },
            "quotas": { "maxSize": "ten" },
        }),
        serde_json::json!({}),
    );
    assert_eq!(
        Wanted::of(&off, None),
        Wanted {
            max_size: Some(Size::Bad("ten".into())),
            ..wanted()
        },
        "a website that is switched off is none"
    );

    let deleted = serde_json::json!({ "deletionTimestamp": "2026-11-29T22:10:29Z" });
    for (policy, deletion) in [
        (None, Deletion::Delete),
        (Some("Delete"), Deletion::Delete),
        (Some("Retain"), Deletion::Retain),
        (Some("Shred"), Deletion::Retain),
    ] {
        let spec = serde_json::json!({ "clusterRef": { "name": "garage" }, "deletionPolicy": policy });
        assert_eq!(
            Wanted::of(&bucket(spec, deleted.clone()), None).deletion,
            Some(deletion),
            "{policy:?}"
        );
    }
}

#[test]
fn a_recorded_bucket_that_another_object_has_is_left_alone() {
    let claimed = Known {
        claimed_by: Some("team/older".into()),
        ..recorded(&["site"])
    };
    let (reason, field, message) = refused(next(&wanted(), &claimed, &Observed::default()));
    assert_eq!((reason, field), (RefusalReason::BucketClaimed, "status.bucketId"));
    assert!(message.contains("team/older"), "{message}");
}

#[test]
fn what_is_not_supported_is_refused_while_it_lives_and_no_reason_to_stay() {
    let with = |spec: serde_json::Value| {
        let mut bucket: GarageBucket = serde_json::from_value(serde_json::json!({
            "apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket",
            "metadata": { "name": "site", "namespace": "team", "uid": "7f3c" },
            "spec": { "clusterRef": { "name": "garage" } },
        }))
        .unwrap();
        bucket.spec = serde_json::from_value(spec).unwrap();
        bucket
    };
    let none = serde_json::json!({ "clusterRef": { "name": "g" }, "localAliases": [], "keyPermissions": [] });
    assert_eq!(
        Unsupported::of(&with(none).spec),
        None,
        "an empty list asks for nothing"
    );
    let keys = serde_json::json!({ "clusterRef": { "name": "g" }, "keyPermissions": [{ "keyRef": { "name": "k" } }] });
    let asks = Wanted::of(&with(keys), None);
    let (reason, field, _) = refused(next(&asks, &recorded(&["site"]), &Observed::default()));
    assert_eq!(
        (reason, field),
        (RefusalReason::Unsupported, "spec.keyPermissions")
    );
    let going = Wanted {
        deletion: Some(Deletion::Delete),
        ..asks
    };
    assert_eq!(
        next(&going, &recorded(&["site"]), &Observed::default()),
        Step::Delete { id: id(ID) }
    );
}

#[test]
fn an_unanswered_creation_is_looked_for_before_the_object_goes() {
    let going = Wanted {
        deletion: Some(Deletion::Delete),
        ..wanted()
    };
    let looked = |by_reservation: Lookup| Observed {
        by_reservation,
        ..Observed::default()
    };
    let with = |creation| Known {
        creation,
        ..reserved()
    };
    let stays = next(&going, &with(Creation::Open), &looked(Lookup::Absent));
    assert_eq!(refused(stays).0, RefusalReason::CreationUnanswered);
    for settled in [Creation::Settled, Creation::Late] {
        let step = next(&going, &with(settled), &looked(Lookup::Absent));
        assert_eq!(step, Step::End(End::Gone));
    }
    let step = next(&going, &with(Creation::Open), &looked(found(&[&own()])));
    assert_eq!(step, Step::Delete { id: id(ID) });
}

#[test]
fn a_late_creation_is_looked_for_once_and_its_bucket_discarded() {
    let late = Known {
        creation: Creation::Late,
        ..recorded(&["site"])
    };
    let seen = |by_reservation: Lookup, not_empty| Observed {
        by_reservation,
        not_empty,
        ..seen(found(&["site"]))
    };
    assert_eq!(
        next(&wanted(), &late, &seen(Lookup::Unknown, false)),
        Step::Look(Question::ByReservation(own()))
    );
    let mut stray = info(&[&own()]);
    stray.id = id(OTHER);
    let stray = Lookup::Found(stray);
    assert_eq!(
        next(&wanted(), &late, &seen(stray.clone(), false)),
        Step::DiscardReserved { id: id(OTHER) }
    );
    for observed in [seen(Lookup::Absent, false), seen(stray, true)] {
        done(next(&wanted(), &late, &observed));
    }
    let open = Known {
        creation: Creation::Open,
        ..late
    };
    done(next(&wanted(), &open, &seen(Lookup::Unknown, false)));
}
