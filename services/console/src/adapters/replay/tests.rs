//! Files that are exports, files that are not, and the pace.

use fleet_view::history::export::{Changed, VERSION};
use fleet_view::history::{Change, View};
use serde_json::json;

use super::*;

fn header() -> String {
    let header = Header { version: VERSION, organisation: "ACME".to_owned(), since: 1_000, until: 9_000 };
    serde_json::to_string(&header).unwrap() + "\n"
}

fn row(at: u64, n: u64) -> String {
    let change = Change::Row(json!({ "key": "a", "n": n }));
    Line::Changed(Box::new(Changed { at, view: View::Hosts, key: "a".to_owned(), change, event: None })).to_text()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[tokio::test]
async fn an_export_is_whole_cut_off_or_refused_by_its_line() {
    let two = header() + &row(1_000, 1) + &row(2_000, 2);
    let whole = file(&(two.clone() + &Line::End(2).to_text()));
    let contents = check(whole.path()).await.unwrap();
    assert_eq!((contents.changes, contents.is_whole, contents.header.organisation.as_str()), (2, true, "ACME"));
    let cut = check(file(&two).path()).await.unwrap();
    assert!(!cut.is_whole && cut.changes == 2);
    for (content, wrong) in [
        (String::new(), "not an export of a console's history"),
        ("password\n".to_owned(), "not an export of a console's history"),
        (two.clone() + "{\"end\":3}\n", "line 4: end: 3 changes should come before it, and there are 2"),
        (two.clone() + &row(1_999, 3), "line 4: at: it is earlier"),
        (two.clone() + &row(3_000, 3)[..20], "line 4: it is not a line of an export"),
        (two + &"x".repeat(3 << 20), "line 4: it is longer than 1048576 bytes"),
    ] {
        let file = file(&content);
        let error = check(file.path()).await.unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains(wrong) && text.contains(&file.path().display().to_string()), "{text}");
        assert_eq!(exit::code_of(&error), exit::CONFIG);
    }
}

#[tokio::test(start_paused = true)]
async fn lines_come_in_their_time_and_again_where_that_is_wanted() {
    let file = file(&(header() + &row(1_000, 1) + &row(3_000, 2) + &row(3_001, 3) + &Line::End(3).to_text()));
    let progress = watch::Sender::new(Progress::default());
    let mut followed = progress.subscribe();
    let source = Source { file: file.path().to_owned(), speed: Some(2.0), repeat: true, progress };
    let began = Instant::now();
    let mut steps = start(source);
    let mut shown = Vec::new();
    while shown.len() < 8 {
        match steps.recv().await.unwrap() {
            Step::Lines(lines) => shown.extend(lines.into_iter().map(|line| {
                let Line::Changed(changed) = line else { panic!("{line:?}") };
                (changed.at, began.elapsed().as_millis() as u64 / 100)
            })),
            Step::Began(header) => shown.push((header.since, began.elapsed().as_millis() as u64 / 100)),
            Step::Ended => panic!("it begins again"),
        }
    }
    let once = [(1_000, 0), (1_000, 0), (3_000, 10), (3_001, 10)];
    assert_eq!(&shown[..4], &once);
    assert_eq!(shown[4..].iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1_000, 1_000, 3_000, 3_001]);
    assert_eq!(shown[6].1, 20, "{shown:?}");
    followed.wait_for(|progress| progress.ended >= 1).await.unwrap();
}
