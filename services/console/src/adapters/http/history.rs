//! The past over HTTP: what happened, and tables as they were.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use fleet_view::history::export::Gap;
use serde_json::{Value, json};

use super::acting::RequestContext;
use super::{Site, VARY, answer_unless_known, parameter, reading, refused};
use crate::adapters::history::{EventPage, EventQuery, Past, ReadError};
use crate::event_marks::EventMarks;
use crate::published::TableName;
use crate::sight::Sight;

/// Events of an answer, unless the request says.
const EVENTS: u32 = 200;

/// Events of an answer, at most.
const EVENTS_MAX: u32 = 1_000;

/// What cannot change any more may be kept so long, in seconds.
const FINAL_S: u32 = 24 * 3_600;

/// `GET /api/v1/events`
pub(super) async fn events(
    State(site): State<Site>,
    caller: RequestContext,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    let sight = match reading::sight(&site, &caller).await {
        Ok(sight) => sight,
        Err(response) => return response,
    };
    let marks = sight.as_ref().map(Sight::marks);
    let (mut query, at) = match event_query(&query, site.clock.now().wall, marks) {
        Ok(query) => query,
        Err((field, rule)) => return refused(StatusCode::BAD_REQUEST, field, rule),
    };
    let clusters = match &sight {
        None => None,
        Some(_) => match site.hub.read(TableName::Clusters).await {
            Ok(clusters) => Some(clusters),
            Err(error) => return refused(StatusCode::SERVICE_UNAVAILABLE, "events", error),
        },
    };
    let seen = sight.as_ref().zip(clusters.as_ref()).map(|(sight, clusters)| sight.names(&clusters.rows));
    if let Some(seen) = &seen {
        let is_wanted = |name: &&String| query.clusters.as_ref().is_none_or(|wanted| wanted.contains(name));
        query.clusters = Some(seen.own().iter().filter(is_wanted).cloned().collect());
    }
    match site.history.events(&query).await {
        Ok(EventPage { begins, .. }) if at.is_some_and(|at| begins.is_none_or(|begins| begins > at)) => {
            failed("at", &begins.map_or(ReadError::Empty, ReadError::Before))
        }
        Ok(EventPage { events, next, gaps, begins }) => {
            let shown = events.into_iter().filter_map(|event| match &seen {
                None => Some(event),
                Some(seen) => seen.event(event),
            });
            let rows: Vec<Value> = shown.map(|event| with_key(event.to_row(), event.number, marks)).collect();
            let next = next.map(|next| marks.map_or_else(|| json!(next), |marks| json!(marks.mark(next))));
            let gaps: Vec<Value> = gaps.iter().map(gap_json).collect();
            let body = json!({ "rows": rows, "next": next, "gaps": gaps, "begins": begins });
            let tag = reading::tag("events", &[&body]);
            answer_unless_known(&headers, tag, || body)
        }
        Err(error) => failed("events", &error),
    }
}

/// `GET /api/v1/TABLE?at=`
pub(super) async fn at(
    site: &Site,
    table: &TableName,
    at: &str,
    sight: Option<Sight>,
    headers: &HeaderMap,
) -> Response {
    let Some(view) = table.view() else {
        return refused(StatusCode::BAD_REQUEST, "at", fleet_view::history::NotRecorded);
    };
    let time = match time("at", at, site.clock.now().wall) {
        Ok(time) => time,
        Err((field, rule)) => return refused(StatusCode::BAD_REQUEST, field, rule),
    };
    let past = match site.history.at(view, time).await {
        Ok(past) => past,
        Err(error) => return failed("at", &error),
    };
    if let Some(sight) = sight {
        return at_of(site, table, (time, past), &sight, headers).await;
    }
    let Past { rows, number, gap, is_final } = past;
    let gap_mark = gap.as_ref().map_or_else(String::new, |gap| format!("-{}-{}", gap.since, gap.until.unwrap_or(0)));
    let tag = format!("\"{view}-at-{number}{gap_mark}{}\"", if is_final { "" } else { "-open" });
    let mut response = answer_unless_known(headers, tag, || {
        let rows: Vec<&Value> = rows.values().collect();
        let gaps: Vec<Value> = gap.iter().map(|gap| json!([gap.since, gap.until])).collect();
        json!({ "rev": number, "at": time, "rows": rows, "gaps": gaps })
    });
    if is_final && let Ok(value) = HeaderValue::from_str(&format!("private, max-age={FINAL_S}, immutable")) {
        response.headers_mut().insert(header::CACHE_CONTROL, value);
        response.headers_mut().insert(header::VARY, HeaderValue::from_static(VARY));
    }
    response
}

/// The same for a caller who sees some clusters only.
async fn at_of(
    site: &Site,
    table: &TableName,
    (at, past): (u64, Past),
    sight: &Sight,
    headers: &HeaderMap,
) -> Response {
    let mut known = BTreeMap::from([(table.clone(), Arc::new(past.rows))]);
    for needed in Sight::needs(table) {
        let Some(view) = needed.view() else { continue };
        match site.history.at(view, at).await {
            Ok(past) => known.insert(needed.clone(), Arc::new(past.rows)),
            Err(error) => return failed("at", &error),
        };
    }
    let rows = sight.table(table, &known);
    let rows: Vec<&Value> = rows.values().collect();
    let tag = reading::tag(&format!("{table}-at"), &rows);
    let gaps: Vec<Value> = past.gap.iter().map(|gap| json!([gap.since, gap.until])).collect();
    answer_unless_known(headers, tag, || json!({ "rev": null, "at": at, "rows": rows, "gaps": gaps }))
}

/// The row of an event, by its mark where the caller sees some clusters only.
fn with_key(mut row: Value, number: u64, marks: Option<&EventMarks>) -> Value {
    if let (Some(marks), Some(fields)) = (marks, row.as_object_mut()) {
        fields.insert("key".to_owned(), json!(marks.mark(number)));
    }
    row
}

fn gap_json(gap: &Gap) -> Value {
    json!({ "since": gap.since, "until": gap.until, "reason": gap.reason })
}

pub(super) fn failed(field: &str, error: &ReadError) -> Response {
    let status = match error {
        ReadError::Before(_) => StatusCode::NOT_FOUND,
        ReadError::None(_) | ReadError::Empty | ReadError::Forgotten | ReadError::Store(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    if let ReadError::Store(error) = error {
        tracing::warn!(error = %error, "the history cannot be read");
    }
    refused(status, field, error)
}

pub(super) type ApiError = (&'static str, String);

/// What is asked for, and the field `at`: of a table at that time, these are the events until then.
fn event_query(query: &RawQuery, now: u64, marks: Option<&EventMarks>) -> Result<(EventQuery, Option<u64>), ApiError> {
    let at = parameter(query, "at").map(|text| time("at", &text, now)).transpose()?;
    if at.is_some() && parameter(query, "until").is_some() {
        return Err(("at", "must not be given with until".to_owned()));
    }
    let (since, until) = span(query, at.unwrap_or(now))?;
    let before = match parameter(query, "before") {
        None => None,
        Some(text) => {
            let number = marks.map_or_else(|| text.parse().ok(), |marks| marks.number(&text));
            let number = number.filter(|number| *number > 0);
            Some(number.ok_or_else(|| rule("before", "the field next of another answer"))?)
        }
    };
    let limit = match parameter(query, "limit") {
        None => EVENTS,
        Some(text) => {
            let limit = text.parse().ok().filter(|limit| (1..=EVENTS_MAX).contains(limit));
            limit.ok_or_else(|| rule("limit", format!("a number from 1 to {EVENTS_MAX}")))?
        }
    };
    let cluster = parameter(query, "cluster");
    if cluster.as_ref().is_some_and(String::is_empty) {
        return Err(rule("cluster", "the name of a cluster"));
    }
    let subject = parameter(query, "subject");
    if subject.as_ref().is_some_and(String::is_empty) {
        return Err(rule("subject", "what an event is about, such as: deployment Oven"));
    }
    Ok((EventQuery { since, until, clusters: cluster.map(|cluster| vec![cluster]), subject, before, limit }, at))
}

/// The fields `since` and `until` of a query.
pub(super) fn span(query: &RawQuery, now: u64) -> Result<(u64, u64), ApiError> {
    let time_of = |field: &'static str, default: u64| match parameter(query, field) {
        Some(text) => time(field, &text, u64::MAX),
        None => Ok(default),
    };
    let (since, until) = (time_of("since", 0)?, time_of("until", now)?);
    if since > until {
        return Err(("since", format!("must not be later than until, which is {until}")));
    }
    Ok((since, until))
}

fn rule(field: &'static str, what: impl Display) -> ApiError {
    (field, format!("must be {what}"))
}

/// A time of the query, not later than `last`.
fn time(field: &'static str, text: &str, last: u64) -> Result<u64, ApiError> {
    let ms = text.parse::<u64>().ok().filter(|ms| i64::try_from(*ms).is_ok());
    let ms = ms.ok_or_else(|| rule(field, "a time in milliseconds since 1970-01-01T00:00:00Z"))?;
    if ms > last {
        return Err((field, format!("must not be later than now, which is {last}")));
    }
    Ok(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_parameter_is_refused_by_its_name() {
        let read = |query: &str| event_query(&RawQuery(Some(query.to_owned())), 1_000, None);
        for (query, field) in [
            ("since=x", "since"),
            ("since=-1", "since"),
            ("since=99999999999999999999", "since"),
            ("since=2000", "since"),
            ("since=7&until=6", "since"),
            ("until=2h", "until"),
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("before=0", "before"),
            ("before=a", "before"),
            ("cluster=", "cluster"),
            ("subject=", "subject"),
            ("at=", "at"),
            ("at=yesterday", "at"),
            ("at=1001", "at"),
            ("at=900&until=900", "at"),
            ("at=900&since=901", "since"),
        ] {
            assert_eq!(read(query).unwrap_err().0, field, "{query}");
        }
        let all = EventQuery { since: 0, until: 1_000, clusters: None, subject: None, before: None, limit: EVENTS };
        assert_eq!(read(""), Ok((all.clone(), None)));
        assert_eq!(read("at=900"), Ok((EventQuery { until: 900, ..all.clone() }, Some(900))));
        let some = read("since=1&until=2000&cluster=Paint%5FShop&subject=deployment+Oven&before=9&limit=5").unwrap().0;
        let (clusters, subject) = (Some(vec!["Paint_Shop".to_owned()]), Some("deployment Oven".to_owned()));
        assert_eq!(some, EventQuery { since: 1, until: 2_000, clusters, subject, before: Some(9), limit: 5 });
    }

    #[test]
    fn who_sees_some_clusters_pages_by_marks_and_not_by_numbers() {
        let marks = EventMarks::new([7; 16]);
        let read = |before: &str| event_query(&RawQuery(Some(format!("before={before}"))), 1_000, Some(&marks));
        assert_eq!(read(&marks.mark(9)).unwrap().0.before, Some(9));
        for wrong in ["9", "", &EventMarks::new([8; 16]).mark(9)] {
            assert_eq!(read(wrong).unwrap_err().0, "before", "{wrong}");
        }
        assert_eq!(with_key(json!({ "key": "9" }), 9, Some(&marks)), json!({ "key": marks.mark(9) }));
        assert_eq!(with_key(json!({ "key": "9" }), 9, None), json!({ "key": "9" }));
    }

    #[test]
    fn the_future_has_no_state() {
        assert!(time("at", "1001", 1_000).unwrap_err().1.contains("later than now"));
        assert_eq!(time("at", "1000", 1_000), Ok(1_000));
    }
}
