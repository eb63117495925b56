//! Generated APIs: three to five versions of different shape, and the rules between them.
//!
//! An API has a few features. A feature is a typical change of a field over the years: it has a
//! shape A, a shape B, and rules in both directions. Every version has each feature in one of its
//! shapes, or lacks it.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by a test and an example"
)]

use super::yaml;
use serde_json::{Map, Value as Json, json};

/// Features as shapes under `spec` (a leading `/` is the root), rules from A to B, and rules back.
/// `#` is the feature's number, `@` the version that is read.
const FEATURES: &[&str] = &[
    // A field renamed, moved, made an object, taken out of one.
    "{a: {old#: string}, b: {new#: string}, ab: [{field: spec.old#, destination: spec.new#}], ba: [{field: \
        spec.new#, destination: spec.old#}]}",
    "{a: {n#: integer}, b: {group#: {n: integer, extra: boolean}}, ab: [{field: spec.n#, destination: \
        spec.group#.n}], ba: [{field: spec.group#.n, destination: spec.n#}]}",
    "{a: {s#: {value: string}}, b: {t#: string}, ab: [{field: spec.s#.value, destination: spec.t#}], ba: [{field: \
        spec.t#, destination: spec.s#.value}]}",
    "{a: {o#: {x: string, y: {z: integer}}}, b: {deep#: {er: {o: {x: string, y: {z: integer}}}}}, ab: [{field: \
        spec.o#, destination: spec.deep#.er.o}], ba: [{field: spec.deep#.er.o, destination: spec.o#}]}",
    // One and many.
    "{a: {one#: string}, b: {many#: [string]}, ab: [{field: spec.one#, to: 'spec.many#[0]'}], ba: [{from: \
        '@.spec.many#[0]', to: spec.one#}], preserve_b: [spec.many#]}",
    // Lists, with keys and without; nested.
    "{a: {'ports#[name]': [{name!: string, port: integer, note: string}]}, b: {'doors#[id]': [{id!: string, number: \
        integer}]}, ab: [{from: @.spec.ports#, to: spec.doors#, itemRules: [{from: self.name, to: item.id}, {from: \
        self.port, to: item.number}]}], ba: [{from: @.spec.doors#, to: spec.ports#, itemRules: [{from: self.id, to: \
        item.name}, {from: self.number, to: item.port}]}]}",
    "{a: {colors#: [{name: string, hue: integer}]}, b: {tones#: [{label: string, mood: string}]}, ab: [{field: \
        'spec.colors#[i].name', destination: 'spec.tones#[].label'}], ba: [{field: 'spec.tones#[i].label', \
        destination: 'spec.colors#[].name'}]}",
    "{a: {'rules#[name]': [{name!: string, paths: [{p: string}]}]}, b: {'routes#[name]': [{name!: string, matches: \
        [{path: string, weight: integer}]}]}, ab: [{from: @.spec.rules#, to: spec.routes#, itemRules: [{from: \
        self.name, to: item.name}, {from: self.paths, to: item.matches, itemRules: [{from: self.p, to: \
        item.path}]}]}], ba: [{from: @.spec.routes#, to: spec.rules#, itemRules: [{from: self.name, to: item.name}, \
        {from: self.matches, to: item.paths, itemRules: [{from: self.path, to: item.p}]}]}]}",
    // Lists of both versions, whose items have fields of their own: without keys, with one, with a
    // key that the other lacks, inside items.
    "{a: {rows#: [{x: string, y: string}]}, b: {rows#: [{x: string, z: integer}]}, ab: [], ba: []}",
    "{a: {'sets#[n]': [{n!: string, y: string}]}, b: {'sets#[n]': [{n!: string, z: {deep: integer, q: string}}]}, \
        ab: [], ba: []}",
    "{a: {'keys#[n]': [{n!: string, y: string}]}, b: {'keys#[n,t]': [{n!: string, t: {$: {type: string, default: \
        T}}, v: integer}]}, ab: [], ba: []}",
    "{a: {'outer#[n]': [{n!: string, inner: [{p: string}], y: string}]}, b: {'outer#[n]': [{n!: string, inner: [{p: \
        string, w: integer}]}]}, ab: [], ba: []}",
    // An item and an entry that rules name.
    "{a: {account#: string}, b: {domains#: [{account: string, name: string}]}, ab: [{field: spec.account#, \
        destination: 'spec.domains#[0].account'}], ba: [{field: 'spec.domains#[0].account', destination: \
        spec.account#}]}",
    "{a: {main#: string}, b: {ways#: {'*': {account: string, name: string}}}, ab: [{field: spec.main#, destination: \
        \"spec.ways#['main'].account\"}], ba: [{field: \"spec.ways#['main'].account\", destination: spec.main#}]}",
    // Maps.
    "{a: {units#: {'*': {x: string, y: string}}}, b: {units#: {'*': {x: string, z: integer}}}, ab: [], ba: []}",
    "{a: {tags#: {'*': string}}, b: {marks#: {'*': string}}, ab: [{field: spec.tags#, destination: spec.marks#}], \
        ba: [{field: spec.marks#, destination: spec.tags#}]}",
    "{a: {envs#: {'*': {value: string, note: string}}}, b: {'vars#[name]': [{name!: string, value: string}]}, ab: \
        [{field: 'spec.envs#[key]', destination: 'spec.vars#[]', transformation: {name: key, value: self.value}}], \
        ba: [{field: 'spec.vars#[i]', destination: 'spec.envs#[self.name]', transformation: {value: self.value}}]}",
    // Words and units.
    "{a: {mode#: {$: {type: string, enum: [fast, slow]}}}, b: {speed#: {$: {type: string, enum: [FAST, SLOW]}}}, \
        ab: [{field: spec.mode#, destination: spec.speed#, transformation: self.upperAscii()}], ba: [{field: \
        spec.speed#, destination: spec.mode#, transformation: self.lowerAscii()}]}",
    "{a: {on#: boolean}, b: {off#: boolean}, ab: [{field: spec.on#, destination: spec.off#, transformation: \
        '!self'}], ba: [{field: spec.off#, destination: spec.on#, transformation: '!self'}]}",
    "{a: {count#: {$: {type: integer, minimum: 0, maximum: 1000000}}}, b: {amount#: {$: {type: string, pattern: \
        '^[0-9]{1,6}$'}}}, ab: [{field: spec.count#, destination: spec.amount#, transformation: string(self % \
        1000000)}], ba: [{field: spec.amount#, destination: spec.count#, transformation: int(self)}]}",
    "{a: {seconds#: {$: {type: integer, minimum: 0, maximum: 100000}}}, b: {minutes#: {$: {type: integer, minimum: \
        0, maximum: 100000}}}, ab: [{field: spec.seconds#, destination: spec.minutes#, transformation: self / 60}], \
        ba: [{field: spec.minutes#, destination: spec.seconds#, transformation: 'self < 1000 ? self * 60 : 60000'}]}",
    // A rule that reads more than it needs.
    "{a: {left#: string, right#: string}, b: {joined#: {sum: string, own: string}}, ab: [{field: spec, destination: \
        spec.joined#.sum, transformation: self.left# + self.right#}], ba: []}",
    // Split and join, which can fail; computed without a way back.
    "{a: {first#: string, last#: string}, b: {full#: string}, ab: [{from: '@.spec.first# + \" \" + @.spec.last#', \
        to: spec.full#}], ba: [{from: '@.spec.full#.split(\" \")[0]', to: spec.first#, mayFail: true}, {from: \
        '@.spec.full#.split(\" \")[1]', to: spec.last#, mayFail: true}]}",
    "{a: {text#: string}, b: {text#: string, size#: integer}, ab: [{field: spec.text#, destination: spec.size#, \
        transformation: size(self)}], ba: []}",
    "{a: {gone#: string}, b: {}, ab: [], ba: [], drop_a: [spec.gone#]}",
    "{a: {box#: {gone: string, kept: string}}, b: {box#: {kept: string}}, ab: [], ba: [], drop_a: [spec.box#.gone]}",
    // The same name for something else; defaults of either side; a constant where the other has
    // nothing.
    "{a: {same#: integer}, b: {same#: string}, ab: [], ba: []}",
    "{a: {d#: {$: {type: string, default: a}}}, b: {d#: {$: {type: string, default: b}}, e#: {$: {type: integer, \
        default: 3}}}, ab: [], ba: []}",
    "{a: {}, b: {kind#: string}, ab: [{from: \"'plain'\", to: spec.kind#, onlyIfAbsent: true}], ba: []}",
    // Free form, status, annotations.
    "{a: {free#: any}, b: {loose#: any}, ab: [{field: spec.free#, destination: spec.loose#}], ba: [{field: \
        spec.loose#, destination: spec.free#}]}",
    // Trees: rules that use themselves for items of any type.
    "{a: {tree#: [anything]}, b: {grown#: [anything]}, ab: [{field: spec.tree#, destination: spec.grown#, itemRules: \
        {name: node, rules: [{field: self.name, destination: item.title}, {field: self.below, destination: \
        item.children, use: node}]}}], ba: [{field: spec.grown#, destination: spec.tree#, itemRules: {name: node, \
        rules: [{field: self.title, destination: item.name}, {field: self.children, destination: item.below, use: \
        node}]}}]}",
    "{a: {/status: {phase#: string}}, b: {/status: {state#: {name: string, since: string}}}, ab: [{field: \
        status.phase#, destination: status.state#.name}], ba: [{field: status.state#.name, destination: \
        status.phase#}]}",
    "{a: {note#: string}, b: {}, ab: [{field: spec.note#, destination: \"metadata.annotations['x/note#']\"}], ba: \
        [{field: \"metadata.annotations['x/note#']\", destination: spec.note#}]}",
];

/// Deterministic numbers from a seed.
pub struct Dice {
    state: u64,
    /// Draws to repeat instead of new ones; after them come zeros.
    again: Option<std::vec::IntoIter<usize>>,
    /// All draws so far.
    pub drawn: Vec<usize>,
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice {
            state: seed,
            again: None,
            drawn: Vec::new(),
        }
    }

    /// Makes dice that fall as they did before.
    pub fn again(draws: Vec<usize>) -> Dice {
        Dice {
            again: Some(draws.into_iter()),
            ..Dice::new(0)
        }
    }

    pub fn below(&mut self, n: usize) -> usize {
        let drawn = match &mut self.again {
            Some(draws) => draws.next().unwrap_or_default().min(n.saturating_sub(1)),
            None => {
                self.state = self
                    .state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (self.state >> 33) as usize % n.max(1)
            }
        };
        self.drawn.push(drawn);
        drawn
    }
}

/// Generates an API in the notation of `bundle`: `{storage, versions, rules}`.
pub fn generated_api(seed: u64) -> Json {
    let dice = &mut Dice::new(seed);
    let features: Vec<Json> = (0..1 + dice.below(5))
        .map(|n| {
            yaml(
                &FEATURES[dice.below(FEATURES.len())]
                    .replace('#', &n.to_string())
                    .replace('@', "VERSION"),
            )
        })
        .collect();
    let names: Vec<String> = (1..=3 + dice.below(3)).map(|n| format!("v{n}")).collect();
    let hub = dice.below(names.len());
    // For every version, the shape of each feature: A, B, or none.
    let shapes: Vec<Vec<usize>> = names
        .iter()
        .map(|_| features.iter().map(|_| [0, 0, 0, 1, 1, 1, 2][dice.below(7)]).collect())
        .collect();
    let mut versions = Map::new();
    for (name, shapes) in names.iter().zip(&shapes) {
        let mut root = Map::from_iter([("spec".to_owned(), json!({"common": "string"}))]);
        for (feature, shape) in features.iter().zip(shapes) {
            for (field, short) in feature[["a", "b", "none"][*shape]].as_object().into_iter().flatten() {
                let (place, fields) = match field.strip_prefix('/') {
                    Some(place) => (place.to_owned(), short.as_object().unwrap().clone()),
                    None => ("spec".to_owned(), Map::from_iter([(field.clone(), short.clone())])),
                };
                let place = root.entry(place).or_insert_with(|| json!({}));
                place.as_object_mut().unwrap().extend(fields);
            }
        }
        versions.insert(name.clone(), Json::Object(root));
    }
    let mut conversions = Vec::new();
    for spoke in (0..names.len()).filter(|spoke| *spoke != hub) {
        for (from, to) in [(hub, spoke), (spoke, hub)] {
            conversions.push(direction(
                &features,
                (&names[from], &shapes[from]),
                (&names[to], &shapes[to]),
            ));
        }
    }
    // Rules beside the hub are about what it lacks.
    let beside = |version: usize| -> Vec<usize> {
        let lacks = shapes[version].iter().zip(&shapes[hub]);
        lacks.map(|(own, hub)| if *hub == 2 { *own } else { 2 }).collect()
    };
    let spokes = (0..names.len()).filter(|spoke| *spoke != hub);
    for (a, b) in spokes
        .clone()
        .flat_map(|b| spokes.clone().filter(move |a| *a < b).map(move |a| (a, b)))
    {
        if dice.below(2) == 0 {
            continue;
        }
        for (from, to) in [(a, b), (b, a)] {
            let found = direction(&features, (&names[from], &beside(from)), (&names[to], &beside(to)));
            if found["rules"] != json!([]) {
                conversions.push(found);
            }
        }
    }
    let storage = &names[dice.below(names.len())];
    json!({"storage": storage, "versions": versions, "rules": {"hub": names[hub], "conversions": conversions}})
}

fn direction(features: &[Json], (from, a): (&str, &[usize]), (to, b): (&str, &[usize])) -> Json {
    let (mut rules, mut preserve, mut drop) = (Vec::new(), Vec::new(), Vec::new());
    for (feature, (a, b)) in features.iter().zip(a.iter().zip(b)) {
        let (way, kept, dropped) = match (a, b) {
            (0, 1) => ("ab", "preserve_a", "drop_a"),
            (1, 0) => ("ba", "preserve_b", "drop_b"),
            _ => continue,
        };
        let of = |name: &str| feature[name].as_array().cloned().unwrap_or_default();
        rules.extend(of(way));
        preserve.extend(of(kept));
        drop.extend(of(dropped));
    }
    let text = json!({"from": from, "to": to, "rules": rules, "preserve": preserve, "drop": drop}).to_string();
    serde_json::from_str(&text.replace("VERSION", from)).unwrap()
}
