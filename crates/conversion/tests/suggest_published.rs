//! Suggestions for published APIs (`../shared/testdata/real` and `published`): fields that their
//! authors renamed, moved or restructured are found, and little else is proposed.
//! `published_moves.txt` lists what ten of them need, `unseen_moves.txt` what 33 others need.

use crate::support::yaml;
use expect_test::expect;
use insula_conversion::proof::Search;
use insula_conversion::{SURE, Suggestions, VersionSchema, suggest};
use insula_meter::Meter;
use insula_schema::Structural;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path as File;
use std::sync::Arc;

const NEEDED: &str = include_str!("testdata/published_moves.txt");
const NEEDED_UNSEEN: &str = include_str!("testdata/unseen_moves.txt");

/// A field of the old version and its counterpart, with `[]` for every item.
type Move = (String, String);

/// Returns what is needed for each definition and pair of versions.
fn needed(text: &'static str) -> Vec<([&'static str; 3], Vec<Move>)> {
    let mut out: Vec<([&str; 3], Vec<Move>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match (line.split_once(" > "), out.last_mut()) {
            (Some((old, new)), Some((_, moves))) => moves.push((old.trim().to_owned(), new.to_owned())),
            _ => {
                let words: Vec<&str> = line.split(' ').collect();
                out.push((words.try_into().unwrap(), Vec::new()));
            }
        }
    }
    out
}

/// Writes `[i2]` and `[key]` as `[]`; an index stays.
fn without_names(path: &str) -> String {
    let parts = path
        .split('[')
        .enumerate()
        .map(|(at, part)| match part.split_once(']') {
            Some((inside, rest)) if at > 0 && inside != "0" => format!("[]{rest}"),
            _ if at > 0 => format!("[{part}"),
            _ => part.to_owned(),
        });
    parts.collect()
}

fn drafted(found: &Suggestions) -> Vec<Move> {
    let mut out = Vec::new();
    for pair in found.pairs.iter().filter(|pair| pair.percent() >= SURE) {
        for old in &pair.old {
            out.extend(
                pair.new
                    .iter()
                    .map(|new| (without_names(&old.to_string()), without_names(&new.to_string()))),
            );
        }
    }
    out
}

/// Returns true if `inner` is `outer` or the same field below both of its ends.
fn within(inner: &Move, outer: &Move) -> bool {
    let rest = inner
        .0
        .strip_prefix(&outer.0)
        .filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    // An object below may be the only item of a list.
    let plain = |rest: &str| rest.replace("[0]", "");
    rest.zip(inner.1.strip_prefix(&outer.1))
        .is_some_and(|(old, new)| plain(old) == plain(new))
}

/// Returns the lists of a pair whose items are matched: their other fields of one name pass.
fn lists((old, new): &Move) -> Option<Move> {
    let list = |path: &str| path.rfind("[]").map(|end| path[..end + 2].to_owned());
    list(old).zip(list(new)).filter(|(old, new)| old != new)
}

/// Numbers of one definition.
#[derive(Default)]
struct Score {
    needed: usize,
    drafted: usize,
    right: usize,
    wrong: usize,
}

impl Score {
    fn add(&mut self, other: &Score) {
        self.needed += other.needed;
        self.drafted += other.drafted;
        self.right += other.right;
        self.wrong += other.wrong;
    }

    fn line(&self) -> String {
        let Score {
            needed,
            drafted,
            right,
            wrong,
        } = self;
        format!("{needed:>6} {drafted:>7} {right:>5} {wrong:>5}")
    }
}

/// Returns the numbers of all definitions of a folder as a table, and their sum; `None` without the
/// folder.
fn scored(folder: &str, moves: &'static str) -> Option<(String, Score)> {
    let folder = File::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/testdata")
        .join(folder);
    if !folder.exists() {
        eprintln!("skipped: {} does not exist", folder.display());
        return None;
    }
    let mut scores: BTreeMap<&str, Score> = BTreeMap::new();
    for ([name, from, to], needed) in needed(moves) {
        let definition = yaml(&fs::read_to_string(folder.join(name).join("crd.yaml")).unwrap());
        let version = |name: &str| version_of(&definition, name);
        let found = drafted(&suggest(&version(from), &version(to), &Meter::unbounded()).unwrap());
        scores
            .entry(name)
            .or_default()
            .add(&score([name, from], &needed, &found));
    }
    let mut lines: Vec<String> = vec![format!("{:<26} needed drafted right wrong", "")];
    let mut all = Score::default();
    for (name, score) in &scores {
        lines.push(format!("{name:<26} {}", score.line()));
        all.add(score);
    }
    lines.push(format!("{:<26} {}", "all", all.line()));
    Some((lines.join("\n") + "\n", all))
}

fn version_of(definition: &Json, name: &str) -> VersionSchema {
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let version = versions.iter().find(|version| version["name"] == name).unwrap();
    let schema = &version["schema"]["openAPIV3Schema"];
    VersionSchema {
        name: name.to_owned(),
        served: true,
        schema: Arc::new(Structural::parse_trusted(schema).unwrap()),
    }
}

fn score([name, from]: [&str; 2], needed: &[Move], found: &[Move]) -> Score {
    let by_lists: Vec<Move> = found.iter().filter_map(lists).collect();
    let is_found = |wanted: &&Move| {
        let covered = |pair: &Move| within(wanted, pair) || within(pair, wanted);
        found.iter().any(covered) || by_lists.iter().any(|pair| within(wanted, pair))
    };
    let wrong = |pair: &&Move| !needed.iter().any(|wanted| within(wanted, pair) || within(pair, wanted));
    for missed in needed.iter().filter(|wanted| !is_found(wanted)) {
        eprintln!("{name} {from}: missed {} > {}", missed.0, missed.1);
    }
    for wrong in found.iter().filter(wrong) {
        eprintln!("{name} {from}: wrong {} > {}", wrong.0, wrong.1);
    }
    Score {
        needed: needed.len(),
        drafted: found.len(),
        right: needed.iter().filter(is_found).count(),
        wrong: found.iter().filter(wrong).count(),
    }
}

#[test]
fn most_moves_of_published_apis_are_suggested() {
    let Some((table, all)) = scored("real", NEEDED) else {
        return;
    };
    assert!(
        all.right * 10 >= all.needed * 8 && all.wrong * 20 <= all.drafted,
        "{table}"
    );
    expect![[r#"
                                   needed drafted right wrong
        azuread-accesspolicy           36      57    36     0
        azuread-application            21      27    21     0
        cert-manager-certificate       13      13    13     0
        cert-manager-issuer             9       9     9     0
        cluster-api-cluster            64      58    62     0
        cluster-api-machine            27      24    24     0
        flux-helmrelease                0       0     0     0
        karpenter-nodepool              3       3     3     0
        tekton-task                     3       3     3     0
        tekton-taskrun                  6       3     5     0
        all                           182     197   176     0
    "#]]
    .assert_eq(&table);
}

/// Definitions that suggestions were not made for.
#[test]
fn moves_of_unseen_apis_are_counted() {
    let Some((table, _)) = scored("published", NEEDED_UNSEEN) else {
        return;
    };
    expect![[r#"
                                   needed drafted right wrong
        capa-eksconfig                  0       0     0     0
        capo-cluster                   16      30    16     0
        capo-machine                    4       4     4     0
        capsule-tenant                  0       0     0     0
        capv-cluster                    4       4     4     0
        capv-machine                    7       7     7     0
        csi-groupcontent                1       1     1     0
        eso-externalsecret              0       0     0     0
        eso-secretstore                 0       0     0     0
        karmada-binding                 2       2     2     0
        knative-eventtype               4       0     0     0
        kueue-admissioncheck            0       0     0     0
        kueue-clusterqueue              3       3     3     0
        kueue-localqueue                1       1     1     0
        kueue-multikueuecluster         2       2     2     0
        kueue-workload                  5       4     4     0
        kyverno-clusterpolicy           0       0     0     0
        metallb-bgppeer                 0       0     0     0
        ocm-addon                       7       4     4     0
        ocm-cma                         5       3     5     0
        otel-collector                  6       7     6     0
        prom-alertmanagerconfig         1       1     1     0
        vmop-image                     12      12    11     0
        vmop-virtualmachine            26      20    20     0
        all                           106     105    91     0
    "#]]
    .assert_eq(&table);
}

/// Returns a schema without a third of its fields: those whose paths have this hash.
fn without(schema: &Json, gone: u32, at: &str) -> Json {
    let mut out = schema.clone();
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            out[inner] = without(&schema[inner], gone, &format!("{at}[]"));
        }
    }
    let Some(fields) = schema["properties"].as_object() else {
        return out;
    };
    let below = |name: &str| format!("{at}.{name}");
    // FNV-1a.
    let hash = |text: &str| {
        text.bytes().fold(2_166_136_261_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
        })
    };
    let stays = |name: &str| at.is_empty() || (hash(&below(name)) >> 8) % 3 != gone;
    let kept = fields.iter().filter(|(name, _)| stays(name));
    out["properties"] = kept
        .map(|(name, field)| (name.clone(), without(field, gone, &below(name))))
        .collect();
    out.as_object_mut().unwrap().remove("required");
    out
}

/// Of each definition, two versions of which one lacks some fields and the other has lost some:
/// nothing moved, and each pair is wrong.
#[test]
fn pairs_of_fields_that_did_not_move_are_counted() {
    let (mut pairs, mut fields) = (0, 0);
    for folder in ["real", "published"] {
        let folder = File::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../shared/testdata")
            .join(folder);
        let Ok(entries) = fs::read_dir(&folder) else {
            eprintln!("skipped: {} does not exist", folder.display());
            return;
        };
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for name in names.iter().filter(|name| name.is_dir()) {
            let definition = yaml(&fs::read_to_string(name.join("crd.yaml")).unwrap());
            let schema =
                &definition["spec"]["versions"].as_array().unwrap().last().unwrap()["schema"]["openAPIV3Schema"];
            let version = |name: &str, gone| VersionSchema {
                name: name.to_owned(),
                served: true,
                schema: Arc::new(Structural::parse_trusted(&without(schema, gone, "")).unwrap()),
            };
            let found = suggest(&version("v1", 0), &version("v2", 1), &Meter::unbounded()).unwrap();
            for pair in found.pairs.iter().filter(|pair| pair.percent() >= SURE) {
                pairs += 1;
                fields += 1;
                let name = name.file_name().unwrap().display();
                eprintln!(
                    "{name}: {} {} > {} {:?}",
                    pair.percent(),
                    pair.old[0],
                    pair.new[0],
                    pair.reasons
                );
            }
            fields += found.only_old.len();
        }
    }
    expect!["134 pairs of 932 fields"].assert_eq(&format!("{pairs} pairs of {fields} fields"));
}

/// No suggestion for the unseen definitions is lost to the checks.
#[test]
fn suggestions_for_unseen_apis_pass_the_checks() {
    let folder = File::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata/published");
    if !folder.exists() {
        eprintln!("skipped: {} does not exist", folder.display());
        return;
    }
    let how = Search {
        cases: 20,
        ..Search::default()
    };
    let mut lost = Vec::new();
    for ([name, from, to], _) in needed(NEEDED_UNSEEN) {
        let definition = yaml(&fs::read_to_string(folder.join(name).join("crd.yaml")).unwrap());
        let (old, new) = (version_of(&definition, from), version_of(&definition, to));
        let mut found = suggest(&old, &new, &Meter::unbounded()).unwrap();
        found.retain_confident(SURE);
        let refused = found.try_out("example.io", (&old, &new), (how, &Meter::unbounded()), &mut |_| {});
        lost.extend(refused.iter().map(|error| format!("{name} {from}: {error}")));
        let with_work = found.pairs.iter().filter_map(|pair| Some((pair, pair.work.as_ref()?)));
        lost.extend(with_work.map(|(pair, work)| format!("{name} {from}: {} > {}: {work}", pair.old[0], pair.new[0])));
    }
    assert!(lost.is_empty(), "{lost:#?}");
}
