//! Kinds of evidence for a suggestion: each makes a pair sure that would be a guess or none without
//! it, and does not where it says too little.

use crate::support::suggested::sure;
use expect_test::expect;

/// Fields that turn several things on are told apart by what they turn on.
#[test]
fn opposite_names_are_pairs_of_one_thing() {
    expect![[r#"
        .spec.disableExternalProbe → .spec.enableExternalProbe by !self
        .spec.disableFloatingCache → .spec.floating.enableCache by !self
        .spec.disablePortSecurity → .spec.port.enablePortSecurity by !self
    "#]]
    .assert_eq(&sure(
        "{spec: {disableExternalProbe: boolean, disablePortSecurity: boolean, disableFloatingCache: boolean, size: \
            string}}",
        "{spec: {enableExternalProbe: boolean, port: {enablePortSecurity: boolean}, floating: {enableCache: boolean}, \
            size: string}}",
    ));
}

/// The schema of a quantity.
const QUANTITY: &str = "{$: {x-kubernetes-int-or-string: true, pattern: '^[0-9]+([KMG]i)?$'}}";

/// A field that has a better counterpart does not compete for another, and what is left in an
/// object is a pair if it is alone.
#[test]
fn fields_of_one_shape_are_paired_by_elimination() {
    let old = format!("{{spec: {{disks: [{{capacity: {QUANTITY}, size: {QUANTITY}}}]}}}}");
    let new =
        |more: &str| format!("{{spec: {{disks: [{{limit: {QUANTITY}, requested: {QUANTITY}, name: string{more}}}]}}}}");
    expect![[r#"
        .spec.disks[i].capacity → .spec.disks[i].limit
        .spec.disks[i].size → .spec.disks[i].requested
    "#]]
    .assert_eq(&sure(&old, &new("")));
    expect![[r#"
        .spec.disks[i].capacity → .spec.disks[i].limit
    "#]]
    .assert_eq(&sure(&old, &new(&format!(", used: {QUANTITY}"))));
}

/// Fields that are left in an object are no pair if their names tell them apart.
#[test]
fn names_that_exclude_each_other_are_no_pair() {
    for (old, new) in [
        ("ingressRules: [{port: integer}]", "egressRules: [{port: integer}]"),
        ("resourceLimits: {'*': string}", "resourceRequests: {'*': string}"),
        ("minReplicas: integer", "maxReplicas: integer"),
        ("sourceAddress: string", "destinationAddress: string"),
        ("ingress: {rules: [string]}", "egress: {rules: [string]}"),
    ] {
        let version = |field: &str| format!("{{spec: {{{field}, name: string}}}}");
        assert_eq!(sure(&version(old), &version(new)), "none\n", "{old}");
    }
    // The words of both say nothing.
    expect![[r#"
        .spec.ingressRules → .spec.ingressPolicies
    "#]]
    .assert_eq(&sure(
        "{spec: {ingressRules: [{port: integer, protocol: string}], name: string}}",
        "{spec: {ingressPolicies: [{port: integer, protocol: string}], name: string}}",
    ));
}

/// Beside each other, `cohort` and `cohortName` have one name, and elsewhere they have not.
#[test]
fn a_name_may_say_that_it_is_one() {
    expect![[r#"
        .spec.cohort → .spec.cohortName
        .status.host → .status.nodeName
        .status.hostName → .status.network.hostName
    "#]]
    .assert_eq(&sure(
        "{spec: {cohort: string}, status: {host: string, hostName: string, phase: string}}",
        "{spec: {cohortName: string}, status: {nodeName: string, network: {hostName: string, dns: {hostName: \
            string}}}}",
    ));
}

#[test]
fn a_value_becomes_a_part_of_the_object_at_its_place() {
    let old = |config: &str| {
        format!("{{spec: {{flavor: string, flavorID: string, labels: {{'*': string}}, config: {config}}}}}")
    };
    let new = "{spec: {flavor: {id: string, filter: {name: string}}, labels: {matchLabels: {'*': string}, \
        matchExpressions: [{key: string, values: [string]}]}, config: any}}";
    expect![[r#"
        .spec.config → .spec.config by yaml.decode(self) (may fail)
        .spec.flavor → .spec.flavor.filter.name
        .spec.flavorID → .spec.flavor.id
        .spec.labels → .spec.labels.matchLabels
    "#]]
    .assert_eq(&sure(&old("string"), new));
    let text = "{$: {type: string, pattern: '^[a-z]+$'}}";
    assert!(!sure(&old(text), new).contains("config"));
}

/// Lists that alone changed in their object, and whose items have the same fields or keys.
#[test]
fn lists_with_restructured_items_are_pairs() {
    let old = "{status: {volumeSnapshotHandlePairList: [{snapshotHandle: string, volumeHandle: string}]}}";
    let info = "volumeSnapshotInfoList: [{ready: boolean, snapshotHandle: string, volumeHandle: string}]";
    expect![[r#"
        .status.volumeSnapshotHandlePairList → .status.volumeSnapshotInfoList
    "#]]
    .assert_eq(&sure(old, &format!("{{status: {{{info}}}}}")));
    expect![[r#"
        none
    "#]]
    .assert_eq(&sure(
        old,
        &format!("{{status: {{{info}, otherList: [{{snapshotHandle: string, volumeHandle: string}}]}}}}"),
    ));
    expect![[r#"
        .spec.supportedConfigs[i].defaultConfig.name → .spec.defaultConfigs[i].name
        .spec.supportedConfigs[i].defaultConfig.namespace → .spec.defaultConfigs[i].namespace
    "#]]
    .assert_eq(&sure(
        "{spec: {'supportedConfigs[group,resource]': [{group!: string, resource!: string, defaultConfig: \
            {name: string, namespace: string}}]}}",
        "{spec: {'defaultConfigs[group,resource]': [{group!: string, resource!: string, name: string, \
            namespace: string}]}}",
    ));
    expect![[r#"
        .spec.env → .spec.envProperties by {"default":"self.default","key":"key","type":"self.type"}
    "#]]
    .assert_eq(&sure(
        "{spec: {env: {'*': {default: string, label: string, key: string, type: string}}, tags: [string]}}",
        "{spec: {envProperties: [{default: string, key: string, type: string}], tags: [string]}}",
    ));
}

/// A text in a list becomes the field of an item that is named like one of the list, also inside of
/// the items of another.
#[test]
fn texts_become_fields_with_the_name_of_their_list() {
    expect![[r#"
        .status.nics[i].ipAddresses[i2] → .status.nics[i].ip.addresses[i2].address
    "#]]
    .assert_eq(&sure(
        "{status: {nics: [{ipAddresses: [string], mac: string}]}}",
        "{status: {nics: [{mac: string, ip: {addresses: [{address: string, origin: string, state: string}]}}]}}",
    ));
}

/// The only map of a shape, from one object to another.
#[test]
fn the_only_maps_of_a_shape_are_a_pair() {
    let old = format!("{{spec: {{resource: {{kind: string, resourcePerReplicas: {{'*': {QUANTITY}}}}}}}}}");
    let new = |more: &str| {
        let moved = format!("replicaRequirements: {{resourceRequest: {{'*': {QUANTITY}}}}}");
        format!("{{spec: {{resource: {{kind: string}}, {moved}{more}}}}}")
    };
    expect![[r#"
        .spec.resource.resourcePerReplicas → .spec.replicaRequirements.resourceRequest
    "#]]
    .assert_eq(&sure(&old, &new("")));
    expect![[r#"
        none
    "#]]
    .assert_eq(&sure(&old, &new(&format!(", resourceLimit: {{'*': {QUANTITY}}}"))));
}

/// General names count if all fields of an object go together.
#[test]
fn all_fields_of_an_object_go_into_the_one_around_it() {
    let old = "{spec: {ref: {name: string, namespace: string}}}";
    expect![[r#"
        .spec.ref.name → .spec.name
        .spec.ref.namespace → .spec.namespace
    "#]]
    .assert_eq(&sure(old, "{spec: {name: string, namespace: string}}"));
    expect![[r#"
        none
    "#]]
    .assert_eq(&sure(old, "{spec: {name: string}}"));
    expect![[r#"
        .spec.name → .spec.ref.name
        .spec.namespace → .spec.ref.namespace
    "#]]
    .assert_eq(&sure("{spec: {name: string, namespace: string}}", old));
}

/// Two objects that went from the spec to the status tell of the fields beside them.
#[test]
fn fields_go_from_the_spec_to_the_status_with_objects() {
    let old = "{spec: {size: string, type: string, hwVersion: integer, os: {id: string, version: string}, product: \
        {vendor: string, version: string}}, status: {phase: string}}";
    let moved = "type: string, hardwareVersion: integer, os: {version: string, id: string, family: string}";
    expect![[r#"
        .spec.hwVersion → .status.hardwareVersion
        .spec.os.id → .status.os.id
        .spec.os.version → .status.os.version
        .spec.product → .status.product
        .spec.type → .status.type
    "#]]
    .assert_eq(&sure(
        old,
        &format!(
            "{{spec: {{size: string}}, status: {{phase: string, {moved}, product: {{vendor: string, version: \
                string}}}}}}"
        ),
    ));
    expect![[r#"
        none
    "#]]
    .assert_eq(&sure(
        old,
        &format!("{{spec: {{size: string}}, status: {{phase: string, {moved}}}}}"),
    ));
}

#[test]
fn enumerations_become_several_fields() {
    let choices = |words: &str| format!("{{$: {{type: string, enum: [{words}]}}}}");
    let (whole, groups, kinds) = (choices("a/x, b/z"), choices("a, b"), choices("X, Z"));
    expect![[r#"
        .spec.c → .spec.r.group + .spec.r.kind by {'a/x': 'a', 'b/z': 'b'}[?self] and {'a/x': 'X', 'b/z': 'Z'}[?self]
    "#]]
    .assert_eq(&sure(
        &format!("{{spec: {{c: {whole}}}}}"),
        &format!("{{spec: {{r: {{group: {groups}, kind: {kinds}}}}}}}"),
    ));
    let mode = choices("Thin, Thick, ThickEagerZero");
    expect![[r#"
        .spec.defaultVolumeOptions.eagerZeroed + .spec.defaultVolumeOptions.thinProvisioned → .spec.defaultVolumeMode
    "#]]
    .assert_eq(&sure(
        "{spec: {defaultVolumeOptions: {thinProvisioned: boolean, eagerZeroed: boolean}}}",
        &format!("{{spec: {{defaultVolumeMode: {mode}}}}}"),
    ));
}
