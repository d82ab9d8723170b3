//! Container images without a container engine: a deterministic OCI archive with one layer, made from files.
//! What goes into which image of the test cluster is listed here too. Loading them is the cluster's business.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, IoContext, Result};
use crate::sh;
use crate::tools::{Part, Tools, hex};

/// Image of the process that holds a Pod's namespaces; the name that containerd is told.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10.2";
/// CoreDNS, under the name that upstream manifests use.
pub const COREDNS: &str = "registry.k8s.io/coredns/coredns:v1.15.0";
/// The echo server.
pub const TESTAPP: &str = "routewright.test/testapp:1";
/// Garage.
pub const GARAGE: &str = "routewright.test/garage:2.5.0";
/// Garage, under the name that samples use.
pub const GARAGE_OF_SAMPLES: &str = "docker.io/dxflrs/garage:v2.5.0";
/// Contour.
pub const CONTOUR: &str = "routewright.test/contour:1.33.8";
/// Envoy.
pub const ENVOY: &str = "routewright.test/envoy:1.40.0";
/// Envoy Gateway.
pub const ENVOY_GATEWAY: &str = "routewright.test/envoy-gateway:1.9.1";
/// The echo server of the conformance suite, under the name that most of its manifests use.
pub const ECHO: &str = "registry.k8s.io/gateway-api/echo-basic:v1.5.1";
/// The stand-in for Tyk.
pub const TYK_DOUBLE: &str = "routewright.test/tyk-double:dev";
/// A Tyk Gateway that was given.
pub const TYK: &str = "routewright.test/tyk:given";
/// Redis, of this machine's Debian.
pub const REDIS: &str = "routewright.test/redis:given";
/// The operator, unless a test chooses another name.
pub const OPERATOR: &str = "routewright.test/routewright:dev";

/// Uid and gid of processes that need no rights.
pub const NONROOT: &str = "65532:65532";

/// What an image holds.
#[derive(Debug, Clone, Default)]
pub struct Image {
    refs: Vec<String>,
    files: Vec<(PathBuf, String)>,
    texts: Vec<(String, String)>,
    entrypoint: Vec<String>,
    user: String,
    ports: Vec<u16>,
    ca: bool,
}

impl Image {
    /// An image with this full name, tag included: never `latest`, which the kubelet would try to pull.
    pub fn new(reference: &str) -> Self {
        Self {
            refs: vec![reference.to_owned()],
            user: NONROOT.to_owned(),
            ..Self::default()
        }
    }

    /// One more name for the same image.
    #[must_use]
    pub fn also(mut self, reference: &str) -> Self {
        self.refs.push(reference.to_owned());
        self
    }

    /// A program at `path`, with the shared libraries that it loads; the last one is what runs.
    #[must_use]
    pub fn program(mut self, source: &Path, path: &str) -> Self {
        self.files.push((source.to_path_buf(), path.to_owned()));
        self.entrypoint = vec![path.to_owned()];
        self
    }

    /// A text file.
    #[must_use]
    pub fn text(mut self, path: &str, text: &str) -> Self {
        self.texts.push((path.to_owned(), text.to_owned()));
        self
    }

    /// Who runs it, `uid:gid`; 65532:65532 when left out, root when empty.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// A port that it serves.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.ports.push(port);
        self
    }

    /// With the certification authorities of this machine.
    #[must_use]
    pub fn ca_certificates(mut self) -> Self {
        self.ca = true;
        self
    }

    /// The first of its names.
    pub fn reference(&self) -> &str {
        self.refs.first().map_or("", String::as_str)
    }

    /// Writes the archive and returns the manifest's digest. The same content gives the same bytes.
    ///
    /// # Errors
    /// When a source file cannot be read, a library of a program is not found, or the archive cannot be written.
    pub fn write(&self, archive: &Path) -> Result<String> {
        let layer = self.layer()?;
        let mut blobs = BTreeMap::new();
        let mut put = |bytes: Vec<u8>, media: &str| {
            let (digest, size) = (hex(&Sha256::digest(&bytes)), bytes.len());
            blobs.insert(digest.clone(), bytes);
            json!({"mediaType": media, "digest": format!("sha256:{digest}"), "size": size})
        };
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let layer = put(layer, "application/vnd.oci.image.layer.v1.tar");
        let ports: serde_json::Map<_, _> = self
            .ports
            .iter()
            .map(|p| (format!("{p}/tcp"), json!({})))
            .collect();
        let config = json!({
            "architecture": architecture, "os": "linux", "created": "1970-01-01T00:00:00Z",
            "config": {
                "Entrypoint": self.entrypoint, "User": self.user, "WorkingDir": "/",
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/"], "ExposedPorts": ports,
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.get("digest")]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "routewright-e2e"}],
        });
        let config = put(bytes_of(&config), "application/vnd.oci.image.config.v1+json");
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config, "layers": [layer],
        });
        let manifest = put(bytes_of(&manifest), "application/vnd.oci.image.manifest.v1+json");
        let entries: Vec<_> = self
            .refs
            .iter()
            .map(|r| {
                let mut entry = manifest.clone();
                let tag = r.rsplit_once(':').map_or("", |(_, t)| t);
                if let Some(map) = entry.as_object_mut() {
                    map.insert(
                        "platform".to_owned(),
                        json!({"architecture": architecture, "os": "linux"}),
                    );
                    map.insert(
                        "annotations".to_owned(),
                        json!({"io.containerd.image.name": r, "org.opencontainers.image.ref.name": tag}),
                    );
                }
                entry
            })
            .collect();
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries,
        });
        // Scenarios side by side make the same archive: each writes a file of its own, and the last one stays.
        static WRITES: AtomicUsize = AtomicUsize::new(0);
        let n = WRITES.fetch_add(1, Ordering::Relaxed);
        let partial = archive.with_extension(format!("part{}-{n}", std::process::id()));
        let file = fs::File::create(&partial).at("create", &partial)?;
        let mut tar = tar::Builder::new(std::io::BufWriter::new(file));
        let mut add =
            |name: String, bytes: &[u8]| entry(&mut tar, &name, bytes, 0o644, tar::EntryType::Regular);
        add("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#).at("write", &partial)?;
        add("index.json".to_owned(), &bytes_of(&index)).at("write", &partial)?;
        for (digest, bytes) in &blobs {
            add(format!("blobs/sha256/{digest}"), bytes).at("write", &partial)?;
        }
        let mut out = tar.into_inner().at("write", &partial)?;
        std::io::Write::flush(&mut out).at("write", &partial)?;
        fs::rename(&partial, archive).at("rename", &partial)?;
        Ok(manifest
            .get("digest")
            .and_then(|d| d.as_str())
            .unwrap_or_default()
            .to_owned())
    }

    /// A folder with everything in it, at `path`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn folder(mut self, source: &Path, path: &str) -> Result<Self> {
        for entry in fs::read_dir(source).at("read", source)?.flatten() {
            let at = format!("{path}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                self = self.folder(&entry.path(), &at)?;
            } else {
                self.files.push((entry.path(), at));
            }
        }
        Ok(self)
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut files: BTreeMap<String, (Vec<u8>, u32)> = BTreeMap::new();
        let plain = |t: &str| (t.as_bytes().to_vec(), 0o644);
        files.insert(
            "etc/passwd".to_owned(),
            plain("root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n"),
        );
        files.insert("etc/group".to_owned(), plain("root:x:0:\nnonroot:x:65532:\n"));
        files.insert("etc/nsswitch.conf".to_owned(), plain("hosts: files dns\n"));
        for (path, text) in &self.texts {
            files.insert(path.trim_start_matches('/').to_owned(), plain(text));
        }
        if self.ca {
            let bundle = Path::new("/etc/ssl/certs/ca-certificates.crt");
            files.insert(
                "etc/ssl/certs/ca-certificates.crt".to_owned(),
                (read(bundle)?, 0o644),
            );
        }
        for (source, path) in &self.files {
            files.insert(path.trim_start_matches('/').to_owned(), (read(source)?, 0o755));
            for library in libraries(source)? {
                let bytes = read(&library)?;
                files.insert(
                    library.display().to_string().trim_start_matches('/').to_owned(),
                    (bytes, 0o755),
                );
            }
        }
        let mut folders: BTreeSet<String> = BTreeSet::new();
        for path in files.keys() {
            let mut parent = Path::new(path).parent();
            while let Some(p) = parent.filter(|p| !p.as_os_str().is_empty()) {
                folders.insert(p.display().to_string());
                parent = p.parent();
            }
        }
        let mut tar = tar::Builder::new(Vec::new());
        let io = |e: std::io::Result<()>| e.at("write", "image layer");
        io(entry(&mut tar, "tmp/", &[], 0o1777, tar::EntryType::Directory))?;
        for folder in folders.iter().filter(|f| *f != "tmp") {
            io(entry(
                &mut tar,
                &format!("{folder}/"),
                &[],
                0o755,
                tar::EntryType::Directory,
            ))?;
        }
        for (path, (bytes, mode)) in &files {
            io(entry(&mut tar, path, bytes, *mode, tar::EntryType::Regular))?;
        }
        tar.into_inner().at("write", "image layer")
    }
}

fn entry<W: std::io::Write>(
    tar: &mut tar::Builder<W>,
    name: &str,
    bytes: &[u8],
    mode: u32,
    kind: tar::EntryType,
) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, name, bytes)
}

fn bytes_of(value: &serde_json::Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).at("read", path)
}

/// The shared libraries of a program and its loader, at the paths where the loader looks; none for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let Ok(out) = sh::output(sh::command("ldd", [program])) else {
        return Ok(Vec::new());
    };
    let text = String::from_utf8_lossy(&out.stdout);
    if let Some(line) = text.lines().find(|l| l.contains("not found")) {
        return Err(Error::other(format!(
            "{}: library {}",
            program.display(),
            line.trim()
        )));
    }
    Ok(text
        .lines()
        .filter_map(|line| line.rsplit_once(" (0x"))
        .filter_map(|(left, _)| left.split_whitespace().last())
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
        .collect())
}

/// An image made of cached parts, written once per version into the cache.
///
/// # Errors
/// As [`Tools::part`] and [`Image::write`].
pub fn of_part(tools: &Tools, part: Part) -> Result<PathBuf> {
    let program = |p: Part| tools.program(p, p.programs().first().copied().unwrap_or_default());
    let file = program(part)?;
    let image = match part {
        Part::Pause => Image::new(PAUSE).program(&file, "/pause").user("65535:65535"),
        Part::CoreDns => Image::new(COREDNS)
            .also("registry.k8s.io/coredns/coredns:v1.12.2")
            .program(&file, "/coredns")
            .user("")
            .port(53),
        Part::TestApp => Image::new(TESTAPP).program(&file, "/app").port(8080),
        Part::Garage => Image::new(GARAGE)
            .also(GARAGE_OF_SAMPLES)
            .program(&file, "/garage")
            .port(3900),
        Part::Contour => Image::new(CONTOUR).program(&file, "/contour").ca_certificates(),
        Part::EnvoyGateway => Image::new(ENVOY_GATEWAY)
            .program(&file, "/envoy-gateway")
            .ca_certificates(),
        Part::GatewayApi => Image::new(ECHO)
            .also("registry.k8s.io/gateway-api/echo-basic:v1.6.0-dev.2")
            .also("registry.k8s.io/gateway-api/echo-basic:v1.6.0-dev.3")
            .program(&tools.program(part, "echo-basic")?, "/echo-basic")
            .port(3000),
        Part::Envoy => Image::new(ENVOY).program(&file, "/envoy").ca_certificates(),
        other => return Err(Error::other(format!("no image is made of {}", other.name()))),
    };
    let recipe: String = hex(&Sha256::digest(format!(
        "1 {:?}",
        (&image.refs, &image.user, &image.ports)
    )))
    .chars()
    .take(8)
    .collect();
    let archive = tools
        .root()
        .join(format!("{}-{}-{recipe}.tar", part.name(), tools.key(part)?));
    if !archive.is_file() {
        image.write(&archive)?;
    }
    Ok(archive)
}

/// The operator's image from a built binary: the same content as the Dockerfile's last stage.
///
/// # Errors
/// As [`Image::write`].
pub fn of_operator(binary: &Path, reference: &str, archive: &Path) -> Result<String> {
    Image::new(reference)
        .program(binary, "/usr/local/bin/routewright")
        .ca_certificates()
        .port(8080)
        .port(8081)
        .write(archive)
}

/// The image of the stand-in for Tyk from a built binary.
///
/// # Errors
/// As [`Image::write`].
pub fn of_double(binary: &Path, archive: &Path) -> Result<String> {
    Image::new(TYK_DOUBLE)
        .program(binary, "/tyk-double")
        .port(8080)
        .write(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gives_the_same_archive_and_every_blob_has_its_digest() {
        let dir = std::env::temp_dir().join(format!("routewright-image-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // Given an image of a program with shared libraries and two names
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let image = Image::new("example.test/a:1")
            .also("example.test/a:2")
            .program(&shell, "/bin/x")
            .port(80);
        // When it is written twice
        let first = image.write(&dir.join("1.tar")).unwrap();
        let second = image.write(&dir.join("2.tar")).unwrap();
        // Then the bytes are equal
        assert_eq!(first, second);
        assert_eq!(
            fs::read(dir.join("1.tar")).unwrap(),
            fs::read(dir.join("2.tar")).unwrap()
        );
        // And each blob is named after its content, both names are in the index, libraries in the layer
        let mut archive = tar::Archive::new(fs::File::open(dir.join("1.tar")).unwrap());
        let (mut blobs, mut layer_files) = (0, Vec::new());
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            if name == "index.json" {
                let text = String::from_utf8(bytes).unwrap();
                assert!(text.contains("example.test/a:1") && text.contains("example.test/a:2"));
            } else if let Some(digest) = name.strip_prefix("blobs/sha256/") {
                assert_eq!(digest, hex(&Sha256::digest(&bytes)));
                blobs += 1;
                if !bytes.starts_with(b"{") {
                    let mut layer = tar::Archive::new(bytes.as_slice());
                    for file in layer.entries().unwrap() {
                        layer_files.push(file.unwrap().path().unwrap().display().to_string());
                    }
                }
            }
        }
        assert_eq!(blobs, 3);
        assert!(layer_files.iter().any(|f| f == "bin/x"), "{layer_files:?}");
        assert!(
            layer_files.iter().any(|f| f.contains("libc.so")),
            "{layer_files:?}"
        );
        assert!(
            layer_files.iter().any(|f| f.starts_with("tmp")),
            "{layer_files:?}"
        );
        fs::remove_dir_all(&dir).unwrap();
    }
}
