//! `input-is-hostile`: what cannot be done is refused in the documented place, whatever comes over the wire does no harm, and the services run on.

use e2e::wire::Reader;
use serde_json::{Value, json};
use sparkplug::metric::DataSet;
use sparkplug::payload::{EncodeOptions, Form, Payload, encode};
use sparkplug::{DataType, Metric};

use crate::factory::uuid;
use crate::site::{CENTRAL, GROUP, NAME, Site};

fn text<'a>(metrics: &'a e2e::wire::Metrics, name: &str) -> Option<&'a str> {
    metrics.get(name)?.as_ref()?.as_str()
}

/// What stands beside `key` in a table of two columns.
fn cell(metrics: &e2e::wire::Metrics, name: &str, key: &str) -> Option<String> {
    let Some(sparkplug::Value::DataSet(table)) = metrics.get(name)?.as_ref() else { return None };
    let text = |row: &[Option<sparkplug::Value>], at: usize| row[at].as_ref()?.as_str().map(str::to_owned);
    table.rows.iter().find(|row| text(row, 0).as_deref() == Some(key)).and_then(|row| text(row, 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_refused_where_it_is_documented() {
    let site = Site::start().await;
    let cli = &site.cli;
    let ids = site.process_ids();

    // A second cluster of the same name, and names that would make a group that is taken.
    let other = "c2000000-0000-4000-8000-000000000002";
    let line = cli.run(&["cluster", "create", NAME, "--uuid", other, "--wait"]).await.refused(5, "is taken by cluster");
    assert!(line.contains(&site.cluster.to_string()), "{line}");
    let list = cli.json(&["cluster", "list"]).await;
    let refused: Vec<&Value> = list.as_array().unwrap().iter().filter(|row| row["setup"] == "refused").collect();
    assert_eq!(refused.len(), 1, "{list:#}");
    assert_eq!((&refused[0]["uuid"], &refused[0]["alive"]), (&json!(other), &json!(false)));
    for name in ["Bad-Name", "Central", "Enrol", "1st", "a/b", "a+b", ""] {
        let line = cli.run(&["cluster", "create", name]).await.refused(2, "cluster name");
        assert!(line.contains("cluster name"), "{name}: {line}");
    }
    // The same past the command line's own check: ConfigDB's schema or the cluster manager says no.
    for (i, name) in ["Bad-Name", "Central", "a/b", "a+b"].into_iter().enumerate() {
        let object = format!("c3000000-0000-4000-8000-00000000000{i}");
        let entry = json!({ "name": name, "namespace": "fplus-edge" }).to_string();
        let put =
            cli.run_with(&["config", "put", &object, "EdgeCluster", "-", "--class", "Edge cluster"], &entry).await;
        if put.code == 0 {
            let refusal = |reader: &Reader| {
                let device = reader.node(CENTRAL, "Cluster-Manager")?.devices.get(&object)?;
                (text(device, "Status/State") == Some("refused"))
                    .then(|| text(device, "Status/Reason").unwrap_or("").to_owned())
            };
            let reason = site.find("the refusal of a bad name", refusal).await;
            assert!(reason.contains("name"), "{name}: {reason}");
        } else {
            put.refused(5, "name");
        }
    }
    let bad = json!({ "name": "Paint_Hall", "namespace": "No Such" }).to_string();
    let put = cli.run_with(&["config", "put", other, "EdgeCluster", "-"], &bad).await;
    if put.code != 0 {
        put.refused(5, "namespace");
    }

    deployments_that_cannot_be_rendered(&site).await;
    templates_with_unknown_placeholders(&site).await;
    nodes_without_address(&site).await;

    assert_eq!(site.process_ids(), ids, "a service was restarted");
    let good = ["deployment", "create", "Oven_1", "--cluster", NAME, "--host", "paint-shop-2", "--wait"];
    assert_eq!(cli.json(&good).await["state"], "ready");
    site.until("agreement", |reader| site.agrees(reader)).await;
}

/// The reason for which the manager refuses a deployment, as soon as it says one.
async fn refused(site: &Site, deployment: &str) -> String {
    let refusal = |reader: &Reader| cell(site.manager_device(reader)?, "Deployments/Refused", deployment);
    site.find("the refusal of a deployment", refusal).await
}

async fn deployments_that_cannot_be_rendered(site: &Site) {
    let cli = &site.cli;
    // A chart that is not a chart, a name that belongs to the cluster's own services, a name that is not a node id.
    let missing = "dddddddd-0000-4000-8000-000000000000";
    let cases = [("No_Chart", missing, missing), ("Sync", "", "service on every cluster"), ("a/b", "", "name")];
    for (i, (name, chart, reason)) in cases.into_iter().enumerate() {
        let object = format!("dd000000-0000-4000-8000-00000000000{i}");
        let chart =
            if chart.is_empty() { configdb_schema::known::chart::EDGE_AGENT.to_string() } else { chart.to_owned() };
        let entry = json!({ "name": name, "cluster": site.cluster, "chart": chart }).to_string();
        // By UUID, because an application has the same name.
        let class = configdb_schema::known::class::EDGE_DEPLOYMENT.to_string();
        let put = ["config", "put", &object, "EdgeDeployment", "-", "--class", &class];
        let put = cli.run_with(&put, &entry).await;
        if put.code != 0 {
            put.refused(5, "name");
            continue;
        }
        let said = refused(site, &object).await;
        assert!(said.contains(reason), "{name}: {said}");
        let shown = cli.json(&["deployment", "show", &object]).await;
        assert_eq!(shown["deployment"]["state"], "refused", "{shown:#}");
        assert_eq!(shown["deployment"]["message"], said.as_str());
        cli.json(&["config", "delete", &object, "EdgeDeployment"]).await;
    }
    // Without a cluster there is no one to refuse it; the command line says what is missing.
    let nowhere = cli.run(&["deployment", "create", "X", "--cluster", "Nowhere"]).await;
    nowhere.refused(7, "Nowhere");
    let host = cli.run(&["deployment", "create", "X", "--cluster", NAME, "--chart", "No such chart"]).await;
    host.refused(7, "No such chart");
    let host = cli.run(&["deployment", "create", "X", "--cluster", NAME, "--host", "nohost", "--wait"]).await;
    host.refused(7, "there are: paint-shop-");
}

async fn templates_with_unknown_placeholders(site: &Site) {
    let cli = &site.cli;
    let chart = "cc000000-0000-4000-8000-000000000001";
    let template =
        json!({ "chart": "edge-agent", "values": { "name": "{{name}}", "uuid": "{{uuid}}", "x": "{{colour}}" } });
    let put = ["config", "put", chart, "HelmChartTemplate", "-", "--class", "Helm chart"];
    cli.json_with(&put, &template.to_string()).await;
    let created = cli.json(&["deployment", "create", "Mixer_1", "--cluster", NAME, "--chart", chart]).await;
    let mixer = uuid(&created).to_string();
    let said = refused(site, &mixer).await;
    assert!(said.contains("{{colour}}") && said.contains("$.x"), "says which and where: {said}");
    cli.run(&["deployment", "create", "Mixer_1", "--cluster", NAME, "--chart", chart, "--wait"])
        .await
        .refused(5, "colour");
    // After the correction it is deployed without another request.
    let template = json!({ "chart": "edge-agent", "values": { "name": "{{name}}", "uuid": "{{uuid}}" } });
    cli.json_with(&put, &template.to_string()).await;
    site.until("the corrected deployment to be applied", |reader| {
        let device = reader.node(GROUP, "Sync").and_then(|sync| sync.devices.get("deployment-Mixer_1"));
        device.is_some_and(|device| text(device, "Status/State") == Some("applied"))
    })
    .await;
    cli.json(&["deployment", "delete", &mixer, "--wait"]).await;
}

async fn nodes_without_address(site: &Site) {
    let kubernetes = site.edge.cluster.kubernetes();
    let node = |name: &str, spec: Value| {
        json!({
            "apiVersion": "factoryplus.app.amrc.co.uk/v1", "kind": "SparkplugNode",
            "metadata": { "name": name, "namespace": "fplus-edge" }, "spec": spec
        })
    };
    let uuid = "aa000000-0000-4000-8000-000000000001";
    kubernetes.apply("kubectl", node("nowhere", json!({ "uuid": uuid }))).unwrap();
    kubernetes.apply("kubectl", node("garbled", json!({ "address": "Other_Group//x" }))).unwrap();
    for name in ["nowhere", "garbled"] {
        let problem = |reader: &Reader| cell(&reader.node(GROUP, "Monitor")?.metrics, "Nodes/Problems", name);
        let problem = site.find("a problem of a node", problem).await;
        assert!(problem.contains("address") || problem.contains("no "), "{name}: {problem}");
    }
}

/// A payload as a command carries it.
fn command(metrics: Vec<Metric>) -> Vec<u8> {
    let payload = Payload { timestamp: Some(1), metrics, ..Payload::default() };
    encode(&payload, &EncodeOptions::new(Form::Command)).to_vec()
}

/// Bytes that do not decode as a payload, and a payload whose content is hostile.
fn garbage() -> Vec<Vec<u8>> {
    let good = command(vec![Metric::new("bdSeq", 0_u64), Metric::new("Setup/Retry", "yes"), Metric::new("x", 1_u64)]);
    let mut all = vec![Vec::new(), vec![0xff; 64], b"{}".to_vec(), good[..good.len() - 3].to_vec(), good];
    // A length that promises more than there is, and messages within messages.
    all.push(vec![0x12, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    let mut nested = vec![0x0a, 0x01, b'x'];
    for _ in 0..200 {
        let mut outer = vec![0x9a, 0x01];
        outer.extend(varint(nested.len()));
        outer.extend(&nested);
        nested = [vec![0x12], varint(outer.len()), outer].concat();
    }
    all.push(nested);
    // A table of a million empty rows, a value of each wrong type, an alias that no birth defines.
    let rows = vec![vec![None]; 100_000];
    let table = DataSet { columns: vec![("c".into(), DataType::Int8)], rows };
    all.push(command(vec![Metric::new("Desired/Index", sparkplug::Value::DataSet(table.into()))]));
    all.push(vec![0x08, 0x01, 0x12, 0x05, 0x10, 0xe7, 0x07, 0x58, 0x01, 0x18, 0x05]);
    all
}

fn varint(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n > 0x7f {
        bytes.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
        n >>= 7;
    }
    bytes.push(u8::try_from(n).unwrap());
    bytes
}

// long: one story in its order
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_comes_over_the_wire_harms_a_service() {
    let site = Site::start().await;
    let ids = site.process_ids();
    let cluster = site.cluster.to_string();
    let created = site.cli.json(&["deployment", "create", "Oven_1", "--cluster", NAME, "--wait"]).await;
    let oven = uuid(&created).to_string();
    let before = e2e::end_state::dump(&site.cli).await;
    let objects = e2e::end_state::kubernetes(&site.edge.cluster);

    // Every service is sent everything as every kind of message, as itself and as a stranger.
    let nodes = [
        (CENTRAL, "ConfigDB"),
        (CENTRAL, "Cluster-Manager"),
        (CENTRAL, "Identity"),
        (CENTRAL, "Monitor"),
        (GROUP, "Sync"),
        (GROUP, "Monitor"),
    ];
    let devices = [
        cluster.as_str(),
        "host-paint-shop-1",
        "deployment-Oven_1",
        &format!("deployment-{oven}"),
        "deployment-x",
        "Oven_1",
    ];
    for payload in garbage() {
        for (group, node) in nodes.into_iter().chain([(GROUP, "Stranger"), ("ACME-Nowhere", "Sync")]) {
            for kind in ["NCMD", "NDATA", "NBIRTH", "NDEATH"] {
                // A birth that can be read is a birth: the broker ACL decides who may publish it.
                if kind != "NBIRTH" || payload.len() < 20 {
                    site.recorder.publish(&format!("spBv1.0/{group}/{kind}/{node}"), payload.clone()).await;
                }
            }
            for device in devices {
                for kind in ["DCMD", "DDATA", "DDEATH"] {
                    site.recorder.publish(&format!("spBv1.0/{group}/{kind}/{node}/{device}"), payload.clone()).await;
                }
            }
        }
    }
    // Topics that are none.
    for topic in [
        "factory/oven",
        "spBv1.0",
        "spBv1.0/x",
        "spBv1.0/G/XBIRTH/N",
        "spBv1.0/STATE/a/b",
        "spBv1.0/G/NCMD/N/D",
        "spBv1.0//NBIRTH/",
    ] {
        site.recorder.publish(topic, b"x".to_vec()).await;
    }
    site.recorder.publish("spBv1.0/STATE/ACME-Central-Cluster-Manager", b"OFFLINE".to_vec()).await;
    // Commands that can be read, and say nothing that can be done.
    let wrong_index = json!({ "version": 1_000_000, "digest": "00", "deployments": {} }).to_string();
    for value in ["", "null", "[]", "{\"version\":-1}", wrong_index.as_str()] {
        let metric = Metric::new("Desired/Index", value);
        site.recorder.publish(&format!("spBv1.0/{GROUP}/NCMD/Sync"), command(vec![metric])).await;
    }
    site.recorder
        .publish(&format!("spBv1.0/{GROUP}/NCMD/Sync"), command(vec![Metric::new("Desired/Index", 7_u64)]))
        .await;
    let configdb = format!("spBv1.0/{CENTRAL}/DCMD/ConfigDB/{cluster}");
    let write = |id: Option<Metric>, more: Vec<Metric>| command(id.into_iter().chain(more).collect());
    let null = Metric::null("EdgeCluster", DataType::String);
    site.recorder.publish(&configdb, write(None, vec![null.clone()])).await;
    site.recorder.publish(&configdb, write(Some(Metric::new("Request/Id", 7_u64)), vec![null])).await;
    let wrong_type = vec![Metric::new("Request/Id", "wrong-type"), Metric::new("EdgeCluster", 7_u64)];
    site.recorder.publish(&configdb, command(wrong_type)).await;
    let refusals = [
        ("no-json", Metric::new("EdgeCluster", "{")),
        ("no-application", Metric::new("Unheard_Of", "{}")),
        ("bad-registration", Metric::new("Registration", "[]")),
    ];
    let place = site.recorder.count();
    for (id, metric) in &refusals {
        let metrics = vec![Metric::new("Request/Id", *id), metric.clone()];
        site.recorder.publish(&configdb, command(metrics)).await;
    }
    for (id, _) in refusals {
        let answered = |message: &e2e::recorder::Message| {
            let result =
                e2e::wire::text(message, "Request/Result").filter(|_| message.topic.contains("/NDATA/ConfigDB"));
            let result: Value = serde_json::from_str(&result?).ok()?;
            (result["id"] == id).then(|| result["outcome"].clone())
        };
        let what = format!("the refusal of {id}");
        assert_eq!(site.recorder.wait_for(&what, place, answered).await, "refused", "{id}");
    }

    assert_eq!(site.process_ids(), ids, "a service has ended");
    // Whatever was taken for a loss is made good by births; the rest had no effect.
    let after = e2e::end_state::dump(&site.cli).await;
    assert_eq!(e2e::end_state::differences(&before, &after), Vec::<String>::new());
    let good = ["deployment", "create", "Oven_2", "--cluster", NAME, "--wait", "--timeout", "110s"];
    let good = uuid(&site.cli.json(&good).await).to_string();
    site.cli.json(&["deployment", "delete", &good, "--wait", "--timeout", "110s"]).await;
    let shown = site.cli.json(&["cluster", "show", NAME]).await;
    assert_eq!((&shown["cluster"]["setup"], &shown["cluster"]["alive"]), (&json!("ready"), &json!(true)), "{shown:#}");
    let found = || {
        let differences = e2e::end_state::differences(&objects, &e2e::end_state::kubernetes(&site.edge.cluster));
        differences.is_empty().then_some(())
    };
    e2e::wait::until("the objects of before", found, || site.edge.processes.tails()).await;
    assert_eq!(site.process_ids(), ids, "a service has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_beyond_the_limit_is_skipped_and_costs_no_session() {
    let site = Site::start().await;
    let ids = site.process_ids();
    let huge = vec![0x12_u8; 17 * 1024 * 1024];
    let large = vec![0x12_u8; 2 * 1024 * 1024];
    let nodes = [
        (CENTRAL, "ConfigDB"),
        (CENTRAL, "Cluster-Manager"),
        (CENTRAL, "Identity"),
        (CENTRAL, "Monitor"),
        (GROUP, "Sync"),
        (GROUP, "Monitor"),
    ];
    for (group, node) in nodes {
        site.recorder.publish(&format!("spBv1.0/{group}/NCMD/{node}"), large.clone()).await;
        site.recorder.publish(&format!("spBv1.0/{group}/NCMD/{node}"), huge.clone()).await;
    }
    site.until("agreement", |reader| site.agrees(reader)).await;
    let good = ["deployment", "create", "Oven_1", "--cluster", NAME, "--wait"];
    assert_eq!(site.cli.json(&good).await["state"], "ready");
    // They read messages in order, so those are behind them.
    for (group, node) in nodes {
        let stays = |reader: &Reader| reader.node(group, node).is_some_and(|node| node.sessions == 1 && node.is_alive);
        site.until(&format!("{node} to go on in its session"), stays).await;
    }
    assert_eq!(site.process_ids(), ids, "a service has ended");
}
