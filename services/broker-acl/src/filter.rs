//! MQTT topic filters: what covers what (MQTT 5.0, 4.7).

/// Whether every topic that `wanted` (a topic or a filter) stands for is also one of `granted`'s. `a/#` also stands for `a`.
#[must_use]
pub fn covers(granted: &str, wanted: &str) -> bool {
    let mut granted = granted.split('/');
    let mut wanted = wanted.split('/').peekable();
    loop {
        match (granted.next(), wanted.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(level)) if level != "#" => {}
            (Some(own), Some(level)) if own == level => {}
            _ => return false,
        }
    }
}

/// Whether some topic is one of both filters' (or topics').
#[must_use]
pub fn overlap(one: &str, other: &str) -> bool {
    let mut one = one.split('/');
    let mut other = other.split('/');
    loop {
        match (one.next(), other.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some(a), Some(b)) if a == b || a == "+" || b == "+" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_covers_its_topics_and_narrower_filters() {
        for (granted, wanted) in [
            ("a/b", "a/b"),
            ("a/+", "a/b"),
            ("a/#", "a"),
            ("a/#", "a/b/c"),
            ("a/#", "a/+/c"),
            ("a/#", "a/#"),
            ("a/+", "a/+"),
            ("#", "+/#"),
        ] {
            assert!(covers(granted, wanted), "{granted} covers {wanted}");
        }
        for (granted, wanted) in
            [("a/b", "a/c"), ("a/+", "a/b/c"), ("a/+", "a"), ("a/+", "a/#"), ("a/b", "a/+"), ("a/b", "#"), ("a", "a/b")]
        {
            assert!(!covers(granted, wanted), "{granted} does not cover {wanted}");
        }
    }

    #[test]
    fn filters_overlap_where_one_topic_is_of_both() {
        for (one, other) in [("a/+/c", "a/b/+"), ("a/#", "a"), ("+/b", "a/#"), ("a", "a"), ("#", "x/y")] {
            assert!(overlap(one, other) && overlap(other, one), "{one} and {other}");
        }
        for (one, other) in [("a/+", "a"), ("a/b", "a/c"), ("a/+/c", "a/b/d"), ("a/#", "b/#")] {
            assert!(!overlap(one, other) && !overlap(other, one), "{one} and {other}");
        }
    }
}
