//! Which messages `sparkfleet watch` shows: what to subscribe to, and what to print of it. Pure.

use clap::Args;
use sparkplug::topic::filter;
use sparkplug::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId, MessageKind, NameError, Topic};

/// Filters of `sparkfleet watch`. Of one kind any may match, of several kinds all must.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters (repeatable)")]
pub struct FilterArguments {
    /// Only this group
    #[arg(long, value_name = "GROUP")]
    pub group: Vec<String>,
    /// Only this edge node (and its devices)
    #[arg(long, value_name = "EDGE NODE")]
    pub node: Vec<String>,
    /// Only this device
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<String>,
    /// Only this kind: NBIRTH NDATA NDEATH NCMD DBIRTH DDATA DDEATH DCMD STATE
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub kind: Vec<MessageKind>,
    /// Only metrics whose name holds this text, and messages with such
    #[arg(long, value_name = "TEXT")]
    pub metric: Vec<String>,
}

fn kind(text: &str) -> Result<MessageKind, &'static str> {
    MessageKind::from_level(&text.to_uppercase())
        .ok_or("it is one of NBIRTH NDATA NDEATH NCMD DBIRTH DDATA DDEATH DCMD STATE")
}

impl FilterArguments {
    /// The narrowest subscriptions that bring everything wanted, and the births that explain it. They never overlap: some servers send one copy for each match.
    ///
    /// # Errors
    /// A group or node that cannot be an id.
    pub fn subscriptions(&self) -> Result<Vec<String>, NameError> {
        let groups = self.group.iter().map(GroupId::new).collect::<Result<Vec<_>, _>>()?;
        let nodes = self.node.iter().map(EdgeNodeId::new).collect::<Result<Vec<_>, _>>()?;
        let mut filters: Vec<String> = match (&groups[..], &nodes[..]) {
            ([], []) => return Ok(vec![filter::everything()]),
            (groups, []) => groups.iter().map(filter::group).collect(),
            ([], nodes) => nodes.iter().map(filter::node_in_all_groups).collect(),
            (groups, nodes) => groups
                .iter()
                .flat_map(|group| nodes.iter().map(|node| EdgeNodeDescriptor::new(group.clone(), node.clone())))
                .map(|node| filter::node(&node))
                .collect(),
        };
        if self.kind.contains(&MessageKind::State) {
            filters.push("spBv1.0/STATE/+".to_owned());
        }
        filters.sort();
        filters.dedup();
        Ok(filters)
    }

    /// The nodes that the filters name completely.
    #[must_use]
    pub fn named_nodes(&self) -> Vec<EdgeNodeDescriptor> {
        let pairs = self.group.iter().flat_map(|group| self.node.iter().map(move |node| (group, node)));
        pairs.filter_map(|(group, node)| EdgeNodeDescriptor::parse(group, node).ok()).collect()
    }

    /// Whether messages of this node are wanted at all.
    #[must_use]
    pub fn takes_node(&self, node: &EdgeNodeDescriptor) -> bool {
        any(&self.group, node.group.as_str()) && any(&self.node, node.edge_node.as_str())
    }

    /// Whether messages of this node or device are wanted.
    #[must_use]
    pub fn takes_place(&self, node: &EdgeNodeDescriptor, device: Option<&DeviceId>) -> bool {
        let of_device = |device: &DeviceId| any(&self.device, device.as_str());
        self.takes_node(node) && device.map_or(self.device.is_empty(), of_device)
    }

    /// Whether a message with this topic is wanted.
    #[must_use]
    pub fn takes(&self, topic: &Topic, kind: MessageKind) -> bool {
        let of_kind = self.kind.is_empty() || self.kind.contains(&kind);
        of_kind
            && match topic {
                Topic::Node { node, .. } => self.takes_place(node, None),
                Topic::Device { node, device, .. } => self.takes_place(node, Some(device)),
                // A host belongs to no group: it is shown where it is asked for, or where nothing else is.
                Topic::State { .. } => {
                    let asks_for_others =
                        [&self.group, &self.node, &self.device, &self.metric].iter().any(|f| !f.is_empty());
                    !self.kind.is_empty() || !asks_for_others
                }
            }
    }

    /// Whether messages are only wanted for some of their metrics.
    #[must_use]
    pub fn wants_metrics(&self) -> bool {
        !self.metric.is_empty()
    }

    /// Whether a metric of this name is wanted.
    #[must_use]
    pub fn takes_metric(&self, name: &str) -> bool {
        self.metric.is_empty() || self.metric.iter().any(|text| name.contains(text.as_str()))
    }
}

fn any(wanted: &[String], is: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == is)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(group: &[&str], node: &[&str], device: &[&str]) -> FilterArguments {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        FilterArguments { group: owned(group), node: owned(node), device: owned(device), ..FilterArguments::default() }
    }

    fn takes(filters: &FilterArguments, topic: &str) -> bool {
        let parsed = Topic::parse(topic).unwrap();
        let kind = match &parsed {
            Topic::Node { kind, .. } | Topic::Device { kind, .. } => *kind,
            Topic::State { .. } => MessageKind::State,
        };
        filters.takes(&parsed, kind)
    }

    #[test]
    fn subscriptions_are_as_narrow_as_the_filters() {
        let of = |filters: &FilterArguments| filters.subscriptions().unwrap();
        assert_eq!(of(&filters(&[], &[], &["D"])), ["spBv1.0/#"]);
        assert_eq!(of(&filters(&["G", "H", "G"], &[], &[])), ["spBv1.0/G/#", "spBv1.0/H/#"]);
        assert_eq!(of(&filters(&[], &["E"], &[])), ["spBv1.0/+/+/E/#"]);
        assert_eq!(of(&filters(&["G"], &["E", "F"], &[])), ["spBv1.0/G/+/E/#", "spBv1.0/G/+/F/#"]);
        let state = FilterArguments { kind: vec![MessageKind::State], ..filters(&["G"], &[], &[]) };
        assert_eq!(of(&state), ["spBv1.0/G/#", "spBv1.0/STATE/+"]);
        assert!(filters(&["a/b"], &[], &[]).subscriptions().is_err());
    }

    #[test]
    fn filters_of_one_kind_are_alternatives_and_of_several_kinds_conditions() {
        let both = filters(&["G", "H"], &["E"], &[]);
        assert!(takes(&both, "spBv1.0/H/DDATA/E/D") && takes(&both, "spBv1.0/G/NCMD/E"));
        assert!(!takes(&both, "spBv1.0/G/NDATA/F") && !takes(&both, "spBv1.0/I/NDATA/E"));
        let device = filters(&[], &[], &["D"]);
        assert!(takes(&device, "spBv1.0/G/DDATA/E/D"));
        assert!(!takes(&device, "spBv1.0/G/DDATA/E/C") && !takes(&device, "spBv1.0/G/NDATA/E"));
        let births =
            FilterArguments { kind: vec![MessageKind::NBirth, MessageKind::DBirth], ..FilterArguments::default() };
        assert!(takes(&births, "spBv1.0/G/DBIRTH/E/D") && !takes(&births, "spBv1.0/G/NDATA/E"));
    }

    #[test]
    fn state_is_shown_without_filters_or_when_asked_for() {
        let state = "spBv1.0/STATE/H";
        assert!(takes(&FilterArguments::default(), state));
        assert!(!takes(&filters(&["G"], &[], &[]), state));
        assert!(takes(&FilterArguments { kind: vec![MessageKind::State], ..filters(&["G"], &[], &[]) }, state));
        assert!(!takes(&FilterArguments { kind: vec![MessageKind::NData], ..FilterArguments::default() }, state));
    }

    #[test]
    fn kinds_are_read_in_any_case_and_metrics_by_part_of_their_name() {
        assert_eq!(kind("nbirth"), Ok(MessageKind::NBirth));
        assert_eq!(kind("STATE"), Ok(MessageKind::State));
        assert!(kind("BIRTH").is_err());
        let some = FilterArguments { metric: vec!["Temp".into()], ..FilterArguments::default() };
        assert!(some.wants_metrics() && some.takes_metric("Zone/Temperature") && !some.takes_metric("Mode"));
    }

    #[test]
    fn only_pairs_of_group_and_node_name_a_node() {
        assert!(filters(&["G"], &[], &[]).named_nodes().is_empty());
        assert_eq!(filters(&["G"], &["E"], &[]).named_nodes(), [EdgeNodeDescriptor::parse("G", "E").unwrap()]);
    }
}
