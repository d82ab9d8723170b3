//! Faults: what goes wrong with which requests.

use std::time::Duration;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// This answer, nothing is done.
    Status(u16, String),
    /// The request is done, then this answer is given.
    StatusAfter(u16, String),
    /// No answer, nothing is done.
    Hang,
    /// The connection is cut, nothing is done.
    DropBefore,
    /// The request is done, then the connection is cut.
    DropAfter,
    /// Status 200 with a page that is none of Tyk's, nothing is done.
    Garbage,
    /// The request is done, so much later.
    Slow(Duration),
}

/// Requests, and what goes wrong with them: `Fault::on("POST", "/tyk/apis").skip(2).times(1).drop_after()` cuts the
/// connection of the third POST.
#[derive(Clone, Debug)]
pub struct Fault {
    method: String,
    prefix: String,
    skip: usize,
    times: usize,
    pub(crate) wrong: Wrong,
}

impl Fault {
    /// Requests with this method (empty: any) to the control API whose path starts like this. Without more: the next one
    /// is answered 500.
    pub fn on(method: &str, prefix: &str) -> Self {
        Self {
            method: method.to_owned(),
            prefix: prefix.to_owned(),
            skip: 0,
            times: 1,
            wrong: Wrong::Status(500, "a fault of the test".to_owned()),
        }
    }

    /// Lets so many matching requests pass before.
    pub fn skip(mut self, number: usize) -> Self {
        self.skip = number;
        self
    }

    /// So many requests. One if not said.
    pub fn times(mut self, number: usize) -> Self {
        self.times = number;
        self
    }

    /// Until the faults are cleared.
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// An error answer of the API, and nothing is done.
    pub fn status(mut self, status: u16, message: &str) -> Self {
        self.wrong = Wrong::Status(status, message.to_owned());
        self
    }

    /// The request is done, and an error is answered all the same.
    pub fn status_after(mut self, status: u16, message: &str) -> Self {
        self.wrong = Wrong::StatusAfter(status, message.to_owned());
        self
    }

    /// No answer ever; nothing is done.
    pub fn hang(mut self) -> Self {
        self.wrong = Wrong::Hang;
        self
    }

    /// The connection is cut before anything is done.
    pub fn drop_before(mut self) -> Self {
        self.wrong = Wrong::DropBefore;
        self
    }

    /// The connection is cut after it is done: the caller cannot know.
    pub fn drop_after(mut self) -> Self {
        self.wrong = Wrong::DropAfter;
        self
    }

    /// 200 with a page of HTML; nothing is done.
    pub fn garbage(mut self) -> Self {
        self.wrong = Wrong::Garbage;
        self
    }

    /// Done and answered so much later.
    pub fn slow(mut self, delay: Duration) -> Self {
        self.wrong = Wrong::Slow(delay);
        self
    }

    /// Whether this request is one of them; counts it.
    fn takes(&mut self, method: &str, path: &str) -> bool {
        let fits = (self.method.is_empty() || self.method == method) && path.starts_with(&self.prefix);
        if !fits || self.times == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times != usize::MAX {
            self.times -= 1;
        }
        true
    }
}

/// The first fault that takes a request; those that are used up go.
pub(crate) fn take(faults: &mut Vec<Fault>, method: &str, path: &str) -> Option<Wrong> {
    let mut found = None;
    for fault in faults.iter_mut() {
        if fault.takes(method, path) && found.is_none() {
            found = Some(fault.wrong.clone());
            break;
        }
    }
    faults.retain(|fault| fault.times > 0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_takes_the_requests_that_it_names() {
        let mut faults = vec![Fault::on("POST", "/tyk/apis").skip(1).times(2).hang()];
        let mut ask = |method: &str, path: &str| take(&mut faults, method, path).is_some();
        let asked = [
            ("GET", "/tyk/apis"),
            ("POST", "/tyk/certs"),
            ("POST", "/tyk/apis/oas"),
            ("POST", "/tyk/apis/oas"),
            ("POST", "/tyk/apis/oas"),
            ("POST", "/tyk/apis/oas"),
        ]
        .map(|(method, path)| ask(method, path));
        assert_eq!(asked, [false, false, false, true, true, false]);
        assert!(faults.is_empty());
    }
}
