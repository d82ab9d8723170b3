//! The few words of `multipart/form-data` that an upload needs.

/// The content of the first part whose name is one of `names`.
pub(crate) fn part<'a>(content_type: &str, body: &'a [u8], names: &[&str]) -> Option<&'a [u8]> {
    let boundary = content_type
        .split(';')
        .map(str::trim)
        .find_map(|one| one.strip_prefix("boundary="))?
        .trim_matches('"');
    let mark = format!("--{boundary}");
    let mut at = find(body, mark.as_bytes())? + mark.len();
    loop {
        let rest = body.get(at..)?;
        // Two dashes behind the mark: the end.
        let rest = rest.strip_prefix(b"\r\n")?;
        let head = find(rest, b"\r\n\r\n")?;
        let length = find(rest.get(head + 4..)?, format!("\r\n{mark}").as_bytes())?;
        let content = rest.get(head + 4..head + 4 + length)?;
        let headers = String::from_utf8_lossy(rest.get(..head)?).into_owned();
        if names
            .iter()
            .any(|name| headers.contains(&format!(" name=\"{name}\"")))
        {
            return Some(content);
        }
        at += 2 + head + 4 + length + 2 + mark.len();
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn the_named_part_is_found() {
        let body = b"--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n1\r\n--x\r\n\
            Content-Disposition: form-data; name=\"cert\"; filename=\"cert.pem\"\r\nContent-Type: text/plain\r\n\r\na\r\nb\r\n--x--\r\n";
        let kind = "multipart/form-data; boundary=x";
        assert_eq!(part(kind, body, &["file", "cert"]), Some(&b"a\r\nb"[..]));
        assert_eq!(part(kind, body, &["none"]), None);
        assert_eq!(part("text/plain", body, &["cert"]), None);
    }
}
