//! What an edge cluster may have accounts of, and what is written for them.

use super::*;
use configdb_contract::RegistrationChange;
use krb_keys_contract::NodeAddress;
use serde_json::json;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);
const OTHER: Uuid = Uuid::from_u128(0xC2);
const GROUP: Uuid = Uuid::from_u128(0x61);
const GROUP_2: Uuid = Uuid::from_u128(0x62);
const NO_GROUP: Uuid = Uuid::from_u128(0x63);
const GIVEN: Uuid = Uuid::from_u128(0x64);
const AGENT: Uuid = known::class::EDGE_AGENT;

#[derive(Default)]
struct World {
    requests: BTreeMap<&'static str, AccountRequest>,
    objects: BTreeMap<Uuid, Object>,
}

impl World {
    fn new() -> Self {
        let group = |class: Uuid| Object { member_of: [class].into(), ..Object::default() };
        let groups = [
            (GROUP, known::class::EDGE_GROUP),
            (GROUP_2, known::class::EDGE_GROUP),
            (NO_GROUP, known::class::R1_CLASS),
        ];
        Self { objects: groups.map(|(uuid, class)| (uuid, group(class))).into(), ..Self::default() }
    }

    fn of(request: AccountRequest) -> Self {
        Self { requests: [("robot", request)].into(), ..Self::new() }
    }

    fn with(mut self, object: Object) -> Self {
        self.objects.insert(GIVEN, object);
        self
    }

    fn plan(&self) -> Plan {
        let recorded = self.objects.iter().filter(|(_, object)| {
            object.account.as_ref().and_then(|account| account.as_ref().ok()).is_some_and(|a| a.cluster == CLUSTER)
        });
        plan(&AccountInputs {
            cluster: CLUSTER,
            name: "Paint",
            group: "ACME-Paint",
            realm: Some("ACME.EXAMPLE"),
            requests: self.requests.iter().map(|(resource, request)| (*resource, request)).collect(),
            recorded: recorded.map(|(uuid, _)| *uuid).collect(),
            object: &|uuid| self.objects.get(&uuid).cloned(),
        })
    }

    /// Carries out what is planned, as ConfigDB does.
    fn apply(&mut self, plan: &Plan) {
        for (uuid, write) in &plan.writes {
            let found = self.objects.get(uuid).and_then(|object| object.etag);
            assert_eq!(write.if_match[EdgeAccount::slug()], found, "no write over the change of another writer");
            if write.registration == Some(RegistrationChange::Delete) {
                self.objects.remove(uuid).expect("an object that exists");
                continue;
            }
            let object = self.objects.entry(*uuid).or_default();
            if let Some(RegistrationChange::Register { class, .. }) = write.registration {
                object.member_of.insert(class);
            }
            if let Some(member_of) = write.membership.as_ref().and_then(|change| change.member_of.clone()) {
                let class = object.member_of.iter().find(|class| CLASSES.contains(class)).copied();
                object.member_of = member_of.into_iter().chain(class).collect();
            }
            for (slug, value) in &write.entries {
                let value = value.clone();
                match slug.as_str() {
                    "Info" => object.info = value,
                    "SparkplugAddress" => object.address = value.map(|value| serde_json::from_value(value).unwrap()),
                    "EdgeAccount" => {
                        object.etag = value.as_ref().map(|_| Uuid::from_u128(0xE));
                        object.account = value.map(|value| Ok(serde_json::from_value(value).unwrap()));
                    }
                    other => panic!("{other}"),
                }
            }
        }
    }

    /// Plans and applies until nothing is left to do.
    fn settle(&mut self) -> BTreeMap<String, Result<Uuid, String>> {
        for _ in 0..3 {
            let plan = self.plan();
            if plan.writes.is_empty() {
                return plan.answers;
            }
            self.apply(&plan);
        }
        panic!("it does not come to rest");
    }

    fn refusal(&self) -> String {
        let plan = self.plan();
        assert!(plan.writes.is_empty(), "{plan:?}");
        plan.answers["robot"].clone().unwrap_err()
    }
}

fn request() -> AccountRequest {
    AccountRequest {
        principal: "nd1/Paint/Robot@ACME.EXAMPLE".to_owned(),
        class: Some(AGENT),
        name: Some("Robot".to_owned()),
        groups: vec![GROUP],
        sparkplug: Some(NodeAddress { node: "Robot".to_owned(), group: None }),
        ..AccountRequest::default()
    }
}

fn given() -> AccountRequest {
    AccountRequest { uuid: Some(GIVEN), class: None, name: None, ..request() }
}

fn agent() -> Object {
    Object { member_of: [AGENT].into(), info: Some(json!({"name": "Old", "location": "hall 2"})), ..Object::default() }
}

fn account(cluster: Uuid) -> EdgeAccount {
    EdgeAccount { cluster, principal: "p@A".to_owned(), managed: false, groups: BTreeSet::new(), node: None }
}

#[test]
fn an_account_is_made_in_one_write_and_then_answered() {
    let mut world = World::of(request());
    let uuid = object_of(CLUSTER, &request());
    let plan = world.plan();
    assert_eq!((plan.answers.len(), plan.writes.len(), plan.written_for[&uuid].as_str()), (0, 1, "robot"));
    assert!(plan.depends_on.is_superset(&[uuid, GROUP].into()));
    assert_eq!(world.settle()["robot"], Ok(uuid));
    let object = &world.objects[&uuid];
    assert_eq!(object.member_of, [AGENT, GROUP].into());
    assert_eq!(object.info, Some(json!({"name": "Robot"})));
    assert_eq!(object.address, Some(SparkplugAddress::node("ACME-Paint", "Robot")));
    let account = object.account.clone().unwrap().unwrap();
    assert_eq!((account.principal.as_str(), account.managed), ("nd1/Paint/Robot@ACME.EXAMPLE", true));
    assert_ne!(object_of(OTHER, &request()), uuid, "the same principal of another cluster is another account");
}

#[test]
fn a_change_takes_back_what_was_made_for_it_and_leaves_the_rest() {
    let mut world = World::of(given()).with(Object { member_of: [AGENT, GROUP_2].into(), ..agent() });
    assert_eq!(world.settle()["robot"], Ok(GIVEN));
    assert_eq!(world.objects[&GIVEN].member_of, [AGENT, GROUP, GROUP_2].into());
    assert_eq!(world.objects[&GIVEN].info, agent().info, "no name is wanted");
    let renamed = AccountRequest {
        class: Some(AGENT),
        name: Some("Robot".to_owned()),
        groups: vec![],
        sparkplug: None,
        ..given()
    };
    world.requests.insert("robot", renamed);
    assert_eq!(world.settle()["robot"], Ok(GIVEN));
    let object = &world.objects[&GIVEN];
    assert_eq!((&object.member_of, &object.address), (&[AGENT, GROUP_2].into(), &None));
    assert_eq!(object.info, Some(json!({"name": "Robot", "location": "hall 2"})));
}

#[test]
fn the_end_deletes_what_was_made_and_leaves_what_was_given() {
    let mut world = World::of(request()).with(Object { member_of: [AGENT, GROUP_2].into(), ..agent() });
    world.requests.insert(
        "given",
        AccountRequest {
            principal: "nd1/Paint/Other@ACME.EXAMPLE".to_owned(),
            sparkplug: Some(NodeAddress { node: "Other".to_owned(), group: Some("ACME-Paint".to_owned()) }),
            ..given()
        },
    );
    let answers = world.settle();
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    world.requests.clear();
    world.settle();
    assert_eq!(world.objects.get(&object_of(CLUSTER, &request())), None);
    assert_eq!(world.objects[&GIVEN], Object { member_of: [AGENT, GROUP_2].into(), ..agent() });
}

#[test]
fn an_account_with_another_principal_is_another_account() {
    let mut world = World::of(request());
    world.settle();
    let other = AccountRequest { principal: "nd1/Paint/Second@ACME.EXAMPLE".to_owned(), ..request() };
    world.requests.insert("robot", other.clone());
    assert_eq!(world.settle()["robot"], Ok(object_of(CLUSTER, &other)));
    assert_eq!(world.objects.get(&object_of(CLUSTER, &request())), None);
}

#[test]
fn what_is_refused_stays_as_it_was() {
    let mut world = World::of(request());
    world.settle();
    world.requests.insert("robot", AccountRequest { groups: vec![NO_GROUP], ..request() });
    assert!(world.refusal().contains("is not an Edge group"));
    assert_eq!(world.objects[&object_of(CLUSTER, &request())].member_of, [AGENT, GROUP].into());
}

#[test]
fn a_cluster_has_accounts_of_its_own_things_only() {
    let principal = |principal: &str| AccountRequest { principal: principal.to_owned(), ..request() };
    let node = |node: &str, group: &str| Some(NodeAddress { node: node.to_owned(), group: Some(group.to_owned()) });
    let table = [
        (principal("nd1/Other/Robot@ACME.EXAMPLE"), "second component must be Paint"),
        (principal("Paint@ACME.EXAMPLE"), "second component must be Paint"),
        (principal("/Paint@ACME.EXAMPLE"), "second component must be Paint"),
        (principal("nd1/Paint/Robot"), "has no realm"),
        (principal("nd1/Paint/Robot@ELSEWHERE"), "realm ACME.EXAMPLE"),
        (principal("nd1/Paint/Robot@A@ACME.EXAMPLE"), "has no realm"),
        (principal("nd1/Paint/\u{7}@ACME.EXAMPLE"), "others than letters"),
        (principal(&"x".repeat(5000)), "more than 255 characters"),
        (
            AccountRequest { class: Some(known::class::EDGE_CLUSTER), ..request() },
            "is not a class that an edge may use",
        ),
        (
            AccountRequest { sparkplug: node("Robot", "ACME-Other"), ..request() },
            "is not the group of this cluster, ACME-Paint",
        ),
        (AccountRequest { groups: vec![GROUP, NO_GROUP], ..request() }, "is not an Edge group"),
        (AccountRequest { groups: vec![Uuid::nil()], ..request() }, "is not an Edge group"),
        (AccountRequest { class: None, ..request() }, "account.uuid is missing"),
        (given(), "there is no object"),
    ];
    for (request, part) in table {
        let refusal = World::of(request).refusal();
        assert!(refusal.contains(part), "{refusal} should say {part}");
    }
}

#[test]
fn a_given_object_must_be_free_and_one_that_can_be_an_account() {
    let address = Some(SparkplugAddress::node("ACME-Other", "Robot"));
    let table = [
        (Object::default(), "is neither an Edge Agent"),
        (Object { account: Some(Ok(account(OTHER))), ..agent() }, "an account of another cluster"),
        (Object { account: Some(Err("x".to_owned())), ..agent() }, "cannot be read: x"),
        (Object { address, ..agent() }, "belongs to another cluster"),
        (Object { deployment_of: Some(OTHER), ..agent() }, "belongs to another cluster"),
        (Object { set_up_for: Some(OTHER), ..agent() }, "belongs to another cluster"),
    ];
    for (object, part) in table {
        let refusal = World::of(given()).with(object).refusal();
        assert!(refusal.contains(part), "{refusal} should say {part}");
    }
    let class = Some(known::class::EDGE_SERVICE_ACCOUNT);
    let refusal = World::of(AccountRequest { class, ..given() }).with(agent()).refusal();
    assert!(refusal.contains("is not of class"), "{refusal}");
    for object in [agent(), Object { deployment_of: Some(CLUSTER), ..Object::default() }] {
        assert_eq!(World::of(given()).with(object).settle()["robot"], Ok(GIVEN));
    }
}

#[test]
fn two_resources_cannot_have_one_principal_one_object_or_one_address() {
    let second = |principal: &str, node: &str| AccountRequest {
        principal: format!("nd1/Paint/{principal}@ACME.EXAMPLE"),
        sparkplug: Some(NodeAddress { node: node.to_owned(), group: None }),
        ..given()
    };
    let table = [
        (second("Robot", "B"), "has an account by another resource"),
        (second("B", "B"), "is the account of another principal"),
        (AccountRequest { uuid: None, class: Some(AGENT), ..second("B", "Robot") }, "is that of another account"),
    ];
    for (request, part) in table {
        let mut world = World::of(given()).with(agent());
        world.requests.insert("second", request);
        let answers = world.settle();
        assert_eq!(answers["robot"], Ok(GIVEN), "the first by name has it");
        let refusal = answers["second"].clone().unwrap_err();
        assert!(refusal.contains(part), "{refusal} should say {part}");
    }
}

#[test]
fn an_account_that_is_another_clusters_is_never_removed() {
    let mut world = World::new();
    world.objects.insert(GIVEN, Object { account: Some(Ok(account(OTHER))), ..agent() });
    assert_eq!(world.plan(), Plan::default());
    assert_eq!(removal(CLUSTER, GIVEN, &world.objects[&GIVEN]), None);
}
