//! What an actor keeps of many documents: counted where memory is taken, and printed. No assertion about the number.
//! A program of its own, since it counts all that is taken.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

#[path = "tyk_sync/stage.rs"]
mod stage;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicIsize, Ordering},
    },
};

use async_trait::async_trait;
use routewright::tyk::{
    client::{Bundle, Listed, StoredCertificate, TykApi, TykError},
    sync::{Actors, Connector, Syncing as _},
    translate::{Owner, stamp},
    verdict::{CertificateUse, Connection, Mode},
};
use serde_json::Value;

use stage::{Stage, api, id, owner, settings, trusted};

struct Counting;

static TAKEN: AtomicIsize = AtomicIsize::new(0);

// Counts and passes on.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as it came.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as it came.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUTES: u32 = 500;
const EACH: u32 = 10;

/// A Tyk that holds nothing and knows what it should hold: every document is made when it is asked for.
struct Made;

fn route(n: u32) -> Owner {
    owner(&format!("r{}", n / EACH))
}

#[async_trait]
impl TykApi for Made {
    fn mode(&self) -> Mode {
        Mode::OpenSource
    }
    async fn get(&self, wanted: &str) -> Result<Option<Value>, TykError> {
        let n = u32::from_str_radix(wanted.trim_start_matches("gwapi-"), 16).unwrap();
        assert_eq!(id(n), wanted);
        Ok(Some(stamp(api(n, &format!("/p{n}")), &route(n)).document))
    }
    async fn list(&self) -> Result<Vec<Listed>, TykError> {
        Ok(Vec::new())
    }
    async fn put(&self, _: &str, _: &Value, _: bool) -> Result<(), TykError> {
        panic!("nothing is to be written")
    }
    async fn delete(&self, _: &str) -> Result<bool, TykError> {
        panic!("nothing is to be deleted")
    }
    async fn reload(&self) -> Result<(), TykError> {
        Ok(())
    }
    async fn certificate(&self, _: &str) -> Result<Option<StoredCertificate>, TykError> {
        Ok(None)
    }
    async fn upload(&self, _: &str, _: &Bundle) -> Result<String, TykError> {
        panic!("nothing is to be uploaded")
    }
    async fn replace(&self, _: &str, _: &Bundle) -> Result<String, TykError> {
        panic!("nothing is to be uploaded")
    }
}

struct Ready;

#[async_trait]
impl Connector for Ready {
    async fn connect(&self, _: &Connection) -> Result<Arc<dyn TykApi>, TykError> {
        Ok(Arc::new(Made))
    }
    async fn bundle(&self, _: &CertificateUse) -> Result<Bundle, TykError> {
        panic!("there are no certificates")
    }
}

#[tokio::test]
async fn memory_of_five_thousand_documents_is_printed() {
    let stage = Stage::new(Mode::OpenSource).await;
    let actors = Actors::new(Arc::new(Ready), Arc::new(|_| ()), Arc::new(|| true), settings());
    let before = TAKEN.load(Ordering::SeqCst);
    for number in 0..ROUTES {
        let apis = (0..EACH).map(|n| number * EACH + n);
        let apis = apis.map(|n| api(n, &format!("/p{n}"))).collect();
        let done = actors
            .submit(&stage.connection, trusted(&format!("r{number}"), apis))
            .await;
        assert!(done.is_clean(), "{done:?}");
    }
    let kept = TAKEN.load(Ordering::SeqCst) - before;
    let documents = ROUTES * EACH;
    println!(
        "{documents} documents of {ROUTES} routes: {} KiB, {} bytes each",
        kept / 1024,
        kept / isize::try_from(documents).unwrap()
    );
    for number in 0..ROUTES {
        let known = actors.known(&routewright::tyk::objects::Key::new("shop", format!("r{number}")));
        assert_eq!(known[0].1.len(), 10);
    }
}
