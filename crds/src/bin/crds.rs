//! `cargo crds`: writes crds/yaml and the reference page of the docs. `cargo crds --check`: fails when one of these files
//! is not what the types say.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{error::Error, fs, path::Path, process::ExitCode};

use routewright_crds::reference;

fn main() -> ExitCode {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => {
            eprintln!("usage: cargo crds [--check]");
            return ExitCode::from(2);
        }
    };
    match run(check) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(stale) => {
            eprintln!("{stale} file(s) out of date: run `cargo crds` and commit the result");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cargo crds: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns how many files are out of date and were left so.
fn run(check: bool) -> Result<usize, Box<dyn Error>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("yaml");
    let files = routewright_crds::generate::files()?;
    let mut stale = 0;
    fs::create_dir_all(&dir)?;
    for entry in fs::read_dir(&dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") && !files.iter().any(|(file, _)| *file == name) {
            println!("crds/yaml/{name} belongs to no kind");
            if check {
                stale += 1;
            } else {
                fs::remove_file(dir.join(name))?;
            }
        }
    }
    let mut files: Vec<(String, String)> = files
        .into_iter()
        .map(|(file, content)| (format!("crds/yaml/{file}"), content))
        .collect();
    files.push((reference::PAGE.to_owned(), reference::page()?));
    for (file, content) in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&file);
        if fs::read_to_string(&path).is_ok_and(|stored| stored == content) {
            continue;
        }
        if check {
            println!("{file} differs from the types");
            stale += 1;
        } else {
            fs::write(&path, content)?;
            println!("wrote {file}");
        }
    }
    Ok(stale)
}
