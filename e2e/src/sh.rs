//! Running programs: command lines as values, output kept for the message, processes by pid and start time.
//! Nothing here knows Kubernetes.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// One line on the terminal, past the capture of the test harness: builds and skips must be seen.
pub fn say(line: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "e2e: {}", line.as_ref());
}

/// The command line as it could be typed. Environment variables are left out: they may hold tokens.
pub fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// The last `n` lines of a text.
pub fn tail(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines
        .iter()
        .skip(lines.len().saturating_sub(n))
        .copied()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Runs a prepared command without input and returns its whole output, whatever the status.
///
/// # Errors
/// When the program cannot be started.
pub fn output(mut command: Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().map_err(|source| Error::Io {
        what: format!("start {}", shown(&command)),
        source,
    })
}

/// Runs a prepared command and returns its standard output.
///
/// # Errors
/// When it cannot be started or ends with a failure; the error holds the end of what it printed.
pub fn run(mut command: Command) -> Result<String> {
    let line = shown(&command);
    let out = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Io {
            what: format!("start {line}"),
            source,
        })?;
    checked(line, &out)
}

/// Like [`run`], with `input` on standard input.
///
/// # Errors
/// As [`run`].
pub fn run_with_input(mut command: Command, input: &str) -> Result<String> {
    let line = shown(&command);
    let io = |source| Error::Io {
        what: format!("start {line}"),
        source,
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let mut stdin = child.stdin.take();
    // A thread writes, so that a program which prints much before it has read all cannot block both sides.
    let out = std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(pipe) = stdin.as_mut() {
                let _ = pipe.write_all(input.as_bytes());
            }
            drop(stdin);
        });
        child.wait_with_output()
    })
    .map_err(io)?;
    checked(line, &out)
}

fn checked(line: String, out: &Output) -> Result<String> {
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&out.stderr);
    let text = if stderr.trim().is_empty() {
        tail(&stdout, 20)
    } else {
        tail(&stderr, 20)
    };
    Err(Error::Command {
        command: line,
        status: out.status.to_string(),
        output: text,
    })
}

/// A command from a program and its arguments.
pub fn command<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Command {
    let mut c = Command::new(program);
    c.args(args);
    c
}

/// Where `program` lies in PATH.
pub fn which(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|d| d.join(program))
        .find(|p| is_executable(p))
}

/// Whether the path is a file that may be executed.
pub fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Waits for `probe` to return a value; asks every `every`, gives up after `limit`. The probe's error text is
/// what the time-out reports as last seen.
///
/// # Errors
/// [`Error::Timeout`].
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    every: Duration,
    mut probe: impl FnMut() -> Result<T, String>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= end => {
                return Err(Error::Timeout {
                    what: what.to_owned(),
                    limit,
                    last,
                });
            }
            Err(_) => std::thread::sleep(every),
        }
    }
}

/// A process by pid and start time, so that a reused pid is never taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Pid in the namespace of the harness.
    pub pid: i32,
    /// Start time in clock ticks since boot, as in /proc/PID/stat.
    pub start: u64,
}

impl Process {
    /// The process that has this pid now.
    pub fn of(pid: i32) -> Option<Self> {
        let fields = stat(pid)?;
        Some(Self {
            pid,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// This process.
    pub fn me() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Whether it still runs. A zombie does not.
    pub fn alive(&self) -> bool {
        let state = |f: Vec<String>| f.into_iter().next();
        self.is_there()
            && stat(self.pid)
                .and_then(state)
                .is_some_and(|s| s != "Z" && s != "X")
    }

    /// Whether the process of this pid is this one, a zombie or not.
    fn is_there(&self) -> bool {
        stat(self.pid).is_some_and(|f| f.get(19).is_some_and(|s| s == &self.start.to_string()))
    }

    /// Sends a signal, to this process or to none: the handle is opened before the start time is compared.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let gone = || Error::other(format!("process {} has ended", self.pid));
        let pid = Pid::from_raw(self.pid).ok_or_else(gone)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
        if !self.alive() {
            return Err(gone());
        }
        pidfd_send_signal(handle, signal).map_err(|_| gone())
    }

    /// SIGSTOP, and waits until every thread stands: after the signal alone a thread on another processor may go on, and
    /// answer a request.
    ///
    /// # Errors
    /// When the process has ended; [`Error::Timeout`].
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let what = format!("standstill of process {}", self.pid);
        wait_for(&what, Duration::from_secs(60), Duration::from_millis(1), || {
            if !self.alive() {
                // What has ended does not answer either; who asks for its signals will be told.
                return Ok(());
            }
            let moving = threads(self.pid).into_iter().find(|state| state != "T");
            moving.map_or(Ok(()), |state| Err(format!("a thread is in state {state}")))
        })
    }

    /// SIGCONT, after [`Self::freeze`].
    ///
    /// # Errors
    /// When the process has ended.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal that ends a process, and waits for the end.
    ///
    /// # Errors
    /// When the process has ended; [`Error::Timeout`].
    pub fn end(&self, signal: Signal, limit: Duration) -> Result<()> {
        self.signal(signal)?;
        self.wait_gone(limit)
    }

    /// The process that has the pid `inner` in the pid namespace of `member`.
    pub fn inside(member: Process, inner: i32) -> Option<Self> {
        let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let wanted = namespace(member.pid)?;
        let inner = inner.to_string();
        std::fs::read_dir("/proc")
            .ok()?
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let ids = status
                    .lines()
                    .find_map(|l| l.strip_prefix("NSpid:"))
                    .unwrap_or_default();
                ids.split_whitespace().last() == Some(inner.as_str())
            })
            .find(|pid| namespace(*pid).as_ref() == Some(&wanted))
            .and_then(Self::of)
    }

    /// Waits for the end, of every thread: the first one may be a zombie while others still hold what was open, a port
    /// for example.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub fn wait_gone(&self, limit: Duration) -> Result<()> {
        wait_for(
            &format!("end of process {}", self.pid),
            limit,
            Duration::from_millis(20),
            || {
                if self.alive() {
                    Err("still running".to_owned())
                } else if self.is_there() && !threads(self.pid).is_empty() {
                    Err("a thread is still running".to_owned())
                } else {
                    Ok(())
                }
            },
        )
    }
}

/// The fields of /proc/PID/stat after the command name: state, parent, ... (start time is number 19).
fn stat(pid: i32) -> Option<Vec<String>> {
    fields(Path::new(&format!("/proc/{pid}/stat")))
}

/// The state letters of the threads that have not ended.
fn threads(pid: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let states = tasks.into_iter().flatten().flatten().filter_map(|task| {
        let state = fields(&task.path().join("stat"))?.into_iter().next()?;
        (state != "Z" && state != "X").then_some(state)
    });
    states.collect()
}

fn fields(stat: &Path) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(stat).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_time_too() {
        // Given a child process
        let mut child = command("sleep", ["60"]).spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(process.alive());
        assert_eq!(
            Process::inside(Process::me().unwrap(), process.pid),
            Some(process)
        );
        // When the start time is another one, then no signal is sent
        let other = Process {
            start: process.start + 1,
            ..process
        };
        assert!(other.signal(Signal::KILL).is_err());
        assert!(process.alive());
        // When it is the right one, then it ends
        process.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!process.alive());
    }

    #[test]
    fn what_is_frozen_stands_when_the_call_returns() {
        // Given a process that counts up in a file as fast as it can
        let file = std::env::temp_dir().join(format!("routewright-frozen-{}", std::process::id()));
        let script = "n=0; while :; do n=$((n+1)); echo $n >\"$0\"; done";
        let mut child = command("sh", ["-c", script, file.to_str().unwrap()])
            .spawn()
            .unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        for _ in 0..20 {
            // When it is frozen, then the file stays as it is
            process.freeze().unwrap();
            assert_eq!(threads(process.pid), ["T"]);
            let then = std::fs::read(&file).ok();
            std::thread::sleep(Duration::from_millis(2));
            assert_eq!(std::fs::read(&file).ok(), then);
            process.thaw().unwrap();
        }
        process.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(process.freeze().is_err());
    }

    #[test]
    fn a_failure_says_what_was_run_and_what_it_printed() {
        let error = run(command("sh", ["-c", "echo oops >&2; exit 3"]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sh -c") && error.contains("oops") && error.contains('3'),
            "{error}"
        );
    }

    #[test]
    fn input_reaches_a_program_that_prints_while_it_reads() {
        let text = "line\n".repeat(50_000);
        assert_eq!(
            run_with_input(command("cat", [] as [&str; 0]), &text)
                .unwrap()
                .len(),
            text.len()
        );
    }
}
