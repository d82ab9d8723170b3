//! Certificates, tokens and kubeconfigs of one node. They live as long as its state folder.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

use crate::error::{Error, IoContext, Result};
use crate::node::addr;

/// Writes everything into `state/pki` and one kubeconfig per component into `state`.
pub(super) fn write(state: &Path, name: &str) -> Result<()> {
    let dir = state.join("pki");
    fs::create_dir_all(&dir).at("create", &dir)?;
    let put = |file: &str, text: &str| fs::write(dir.join(file), text).at("write", dir.join(file));
    let bad = |e: rcgen::Error| Error::other(format!("certificates of the node: {e}"));

    let ca_key = KeyPair::generate().map_err(bad)?;
    let mut ca = subject(&format!("{name}-ca"), None);
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let ca_pem = ca.self_signed(&ca_key).map_err(bad)?.pem();
    put("ca.crt", &ca_pem)?;
    put("ca.key", &ca_key.serialize_pem())?;
    let issuer = Issuer::new(ca, ca_key);

    let sign = |file: &str, mut params: CertificateParams, server: &[&str]| -> Result<()> {
        let key = KeyPair::generate().map_err(bad)?;
        params.extended_key_usages = vec![if server.is_empty() {
            ExtendedKeyUsagePurpose::ClientAuth
        } else {
            ExtendedKeyUsagePurpose::ServerAuth
        }];
        params.use_authority_key_identifier_extension = true;
        for host in server {
            params.subject_alt_names.push(match host.parse() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName((*host).try_into().map_err(bad)?),
            });
        }
        let cert = params.signed_by(&key, &issuer).map_err(bad)?;
        put(&format!("{file}.crt"), &cert.pem())?;
        put(&format!("{file}.key"), &key.serialize_pem())
    };
    sign(
        "apiserver",
        subject("kube-apiserver", None),
        &[
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
            "127.0.0.1",
            addr::API_SERVICE,
            addr::NODE,
        ],
    )?;
    let node_user = format!("system:node:{name}");
    sign(
        "kubelet",
        subject(&node_user, Some("system:nodes")),
        &[name, addr::NODE],
    )?;
    sign(
        "apiserver-kubelet",
        subject("apiserver-kubelet-client", Some("system:masters")),
        &[],
    )?;
    sign("front-proxy", subject("front-proxy", None), &[])?;

    let accounts = KeyPair::generate().map_err(bad)?;
    put("sa.key", &accounts.serialize_pem())?;
    put("sa.pub", &accounts.public_key_pem())?;

    let mut tokens = String::new();
    for (file, user, group) in [
        ("admin", "admin", "system:masters"),
        ("kcm", "system:kube-controller-manager", ""),
        ("scheduler", "system:kube-scheduler", ""),
        ("proxy", "system:kube-proxy", ""),
        ("kubelet", node_user.as_str(), "system:nodes"),
    ] {
        let token = random_token()?;
        tokens.push_str(&match group {
            "" => format!("{token},{user},{user}\n"),
            group => format!("{token},{user},{user},\"{group}\"\n"),
        });
        let path = state.join(format!("{file}.kubeconfig"));
        fs::write(&path, kubeconfig(&addr::api(), &dir.join("ca.crt"), &token)).at("write", &path)?;
    }
    put("tokens.csv", &tokens)
}

/// A kubeconfig with one user that has a bearer token.
pub(crate) fn kubeconfig(server: &str, ca: &Path, token: &str) -> String {
    let ca = ca.display();
    format!(
        r#"apiVersion: v1
kind: Config
clusters: [{{name: node, cluster: {{server: "{server}", certificate-authority: "{ca}"}}}}]
users: [{{name: user, user: {{token: "{token}"}}}}]
contexts: [{{name: node, context: {{cluster: node, user: user}}}}]
current-context: node
"#
    )
}

fn subject(name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut dn = DistinguishedName::new();
    if let Some(o) = organization {
        dn.push(DnType::OrganizationName, o);
    }
    dn.push(DnType::CommonName, name);
    params.distinguished_name = dn;
    params
}

/// 32 hexadecimal digits from the system's random source.
///
/// # Errors
/// When that cannot be read.
pub fn random_token() -> Result<String> {
    use std::io::Read as _;
    let mut bytes = [0u8; 16];
    let source = "/dev/urandom";
    fs::File::open(source)
        .and_then(|mut f| f.read_exact(&mut bytes))
        .at("read", source)?;
    Ok(crate::tools::hex(&bytes))
}
