//! A node as a reader of the documentation wants one: with a gateway, the images that its commands name (a node of
//! ours pulls none), and Helm. And the commands themselves, taken out of a page. What they should lead to is not said
//! here.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::cluster::{Cluster, blocking};
use crate::error::{Error, IoContext, Result};
use crate::operator::{binary, chart};
use crate::tools::Part;
use crate::{contour, image, sh};

/// The image that the chart names when no value is set.
///
/// # Errors
/// When the chart does not render, or renders no image.
pub fn chart_image(cluster: &Cluster) -> Result<String> {
    let mut c = cluster.helm_command(["template", "routewright"])?;
    c.arg(chart());
    let rendered = sh::run(c)?;
    let named = rendered.lines().find_map(|l| {
        let l = l.trim().trim_start_matches("- ");
        l.strip_prefix("image:")
            .map(|i| i.trim().trim_matches('"').to_owned())
    });
    named.ok_or_else(|| Error::other("the chart renders no image"))
}

/// Puts Contour with Envoy on the node, loads the images of Garage and of the operator under the names that samples
/// and chart give them, and adds `helm` and `routewright` to the programs of [`crate::node::Node::command`]. Returns the
/// gateway's address.
///
/// # Errors
/// [`Error::Missing`] on a cluster that is not a node of ours; when something cannot be built.
pub async fn furnish(cluster: &'static Cluster) -> Result<IpAddr> {
    let node = cluster.own_node()?;
    let address = contour::install(cluster).await?;
    cluster.load_part(Part::Garage).await?;
    blocking(move || {
        let archive = cluster.scratch().join("operator-of-the-chart.tar");
        image::of_operator(&binary()?, &chart_image(cluster)?, &archive)?;
        cluster.load(&archive)
    })
    .await?;
    let helm = blocking(move || cluster.tools().program(Part::Helm, "helm")).await?;
    for (name, program) in [("helm", helm), ("routewright", blocking(binary).await?)] {
        let link = node.state().join("bin").join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(&program, &link).at("link", &link)?;
        }
    }
    Ok(address)
}

/// The shell commands of a page: its fenced `sh` blocks, each with the number of its first line. A block of another
/// kind, or of indented lines, is text.
///
/// # Errors
/// When the page cannot be read or a block is not closed.
pub fn blocks(page: &Path) -> Result<Vec<(usize, String)>> {
    enum Open {
        Shell(usize, String),
        Other,
    }
    let text = fs::read_to_string(page).at("read", page)?;
    let (mut found, mut open) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        let fence = line.starts_with("```");
        open = match open {
            None if line.trim_end() == "```sh" => Some(Open::Shell(number + 2, String::new())),
            None => fence.then_some(Open::Other),
            Some(Open::Shell(first, commands)) if fence => {
                found.push((first, commands));
                None
            }
            Some(Open::Shell(first, commands)) => Some(Open::Shell(first, commands + line + "\n")),
            Some(Open::Other) => (!fence).then_some(Open::Other),
        };
    }
    match open {
        None => Ok(found),
        Some(_) => Err(Error::other(format!("{}: a block is not closed", page.display()))),
    }
}

/// Runs commands of a page in one shell inside of the node, in a folder; says where each block begins. What they
/// printed.
///
/// # Errors
/// When one fails, with what was said until then.
pub async fn follow(cluster: &'static Cluster, folder: &Path, blocks: &[(usize, String)]) -> Result<String> {
    // What a block left running in the background would hold the output open.
    let mut script = format!(
        "cd '{}'\ntrap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n",
        folder.display()
    );
    for (line, commands) in blocks {
        script.push_str(&format!("echo '== line {line}' >&2\n{commands}"));
    }
    let c = cluster
        .own_node()?
        .command(["bash", "-euo", "pipefail", "-c", &script]);
    blocking(move || sh::run(c)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_shell_blocks_of_a_page_and_nothing_else() {
        let file = std::env::temp_dir().join(format!("routewright-reader-{}.md", std::process::id()));
        let page = "# T\n\n```sh\none \\\n  two\n```\n\n    not this\n\n```yaml\nnor: this\n```\n\n```sh\nthree\n```\n";
        fs::write(&file, page).unwrap();
        let found = blocks(&file).unwrap();
        assert_eq!(
            found,
            [(4, "one \\\n  two\n".to_owned()), (15, "three\n".to_owned())]
        );
        fs::write(&file, "```sh\nopen\n").unwrap();
        assert!(blocks(&file).is_err());
        fs::remove_file(&file).unwrap();
    }
}
