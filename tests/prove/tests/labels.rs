//! The model is a second text beside the code. What both must have in common is looked at here.

/// Labels that the model leaves out: progress, the result of an init, clear refusals, ids of endorsement keys.
const LEFT_OUT: [&str; 4] = ["ajp1/5p", "ajp1/6", "ajp1/r", "ajp1/ek"];

#[test]
fn every_label_of_the_transcript_is_in_the_model_or_left_out_on_purpose() {
    let transcript = include_str!("../../../services/contracts/join-protocol/src/transcript.rs");
    let labels: Vec<&str> = transcript.split('"').filter(|text| text.starts_with("ajp1/")).collect();
    assert!(labels.len() > 15, "{labels:?}");
    let model = include_str!("../join.model");
    for label in labels {
        let is_modelled = model.contains(&format!("{label}("));
        assert_ne!(is_modelled, LEFT_OUT.contains(&label), "{label}");
    }
}
