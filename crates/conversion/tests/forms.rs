//! Table tests: every file of `tests/data` has schemas, rules, and writes with expected reads.
//! After each write, the laws are checked in all versions.

use crate::support::{bundle, object, yaml};
use insula_api::FieldPath;
use insula_conversion::proof::Search;
use insula_conversion::{Bundle, ToStore, laws, proof, unmetered_budget};
use insula_meter::Meter;
use serde_json::Value as Json;

#[test]
fn rule_forms_and_stories() {
    let mut failures = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir("tests/data")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let doc = yaml(&std::fs::read_to_string(&file).unwrap());
        let cases = doc["cases"].as_array().map_or_else(|| vec![doc.clone()], Clone::clone);
        for (i, case) in cases.iter().enumerate() {
            let mut whole = doc.clone();
            whole.as_object_mut().unwrap().extend(case.as_object().unwrap().clone());
            let name = format!(
                "{} [{}]",
                file.display(),
                case["name"].as_str().map_or(i.to_string(), str::to_owned)
            );
            if let Err(why) = run(&whole) {
                failures.push(format!("{name}: {why}"));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn run(doc: &Json) -> Result<(), String> {
    let compiled = bundle(doc).and_then(|bundle| {
        let mut failing = bundle.over_budget(&FieldPath::new("spec"));
        // Other tests search sequences of writes.
        let edges = Search {
            cases: 0,
            ..Search::default()
        };
        failing.extend(
            proof::prove(&bundle, edges, &Meter::unbounded())
                .err()
                .unwrap_or_default(),
        );
        if failing.is_empty() {
            Ok(bundle)
        } else {
            Err(failing.iter().map(ToString::to_string).collect())
        }
    });
    if let Some(refused) = doc["refused"].as_array() {
        let Err(errors) = compiled else {
            return Err("was not refused".into());
        };
        let want: Vec<&str> = refused.iter().map(|t| t.as_str().unwrap()).collect();
        // `…` hides the wording of messages from another crate.
        let fits = |(want, got): (&&str, &String)| {
            want.strip_suffix('…')
                .map_or(got == want, |start| got.starts_with(start))
        };
        return if errors.len() == want.len() && want.iter().zip(&errors).all(fits) {
            Ok(())
        } else {
            Err(format!("refused with {errors:#?}"))
        };
    }
    let bundle = compiled.map_err(|errors| format!("refused: {errors:#?}"))?;
    let mut stored: Option<ToStore> = None;
    for (i, step) in doc["steps"].as_array().ok_or("no steps")?.iter().enumerate() {
        one(&bundle, step, &mut stored).map_err(|why| format!("step {i}: {why}"))?;
    }
    Ok(())
}

fn one(bundle: &Bundle, step: &Json, stored: &mut Option<ToStore>) -> Result<(), String> {
    if let Some(from) = step["write"].as_str() {
        let x = object(from, &step["object"]);
        let old = if step["fresh"] == true { None } else { stored.as_ref() };
        let wrote = bundle.put(
            &x,
            from,
            old.map(|s| s.stored(bundle.storage())),
            &mut unmetered_budget(),
        );
        let after = match (wrote, step["error"].as_str()) {
            (Err(error), Some(want)) if error.to_string() == want => return Ok(()),
            (Err(error), _) => return Err(error.to_string()),
            (Ok(_), Some(_)) => return Err("the write was not refused".into()),
            (Ok(after), None) => after,
        };
        if step["lossy"] != true {
            laws::put_get(bundle, &x, from, &after).map_err(|v| v.to_string())?;
        }
        laws::get_put(bundle, &after).map_err(|v| v.to_string())?;
        if let Some(before) = old {
            laws::non_interference(bundle, from, before, &after).map_err(|v| v.to_string())?;
        }
        if let Some(want) = step.get("residual") {
            let mut got: Json = after
                .residual
                .as_deref()
                .map_or(Json::Null, |r| serde_json::from_slice(r).unwrap());
            // The records of the rules that wrote it are tested by `recompute`.
            if let Some(residuals) = got.as_object_mut() {
                residuals.remove("");
            }
            let is_empty = got.as_object().is_some_and(serde_json::Map::is_empty);
            let got = if is_empty { Json::Null } else { got };
            differ(want, &got)?;
        }
        *stored = Some(after);
    }
    for (to, want) in step["read"].as_object().into_iter().flatten() {
        let after = stored.as_ref().ok_or("nothing is stored")?;
        let got = bundle
            .get(after.stored(bundle.storage()), to, &mut unmetered_budget())
            .map_err(|e| e.to_string())?;
        differ(&object(to, want), &got)?;
    }
    if let Some(from) = step["convert"].as_str() {
        let to = step["to"].as_str().ok_or("convert needs to")?;
        let got = bundle.convert(&object(from, &step["object"]), to, &mut unmetered_budget());
        match (got, step["error"].as_str()) {
            (Ok(got), None) => differ(&object(to, &step["want"]), &got)?,
            (Err(error), Some(want)) if error.to_string() == want => {}
            (got, _) => return Err(format!("{:?}", got.map_err(|e| e.to_string()))),
        }
    }
    Ok(())
}

/// The deepest object that a request may hold is converted on the stack of a thread as it is.
#[test]
fn rules_that_use_themselves_reach_the_deepest_item() {
    let file = yaml(&std::fs::read_to_string("tests/data/trees.yaml").unwrap());
    let bundle = bundle(&file).unwrap();
    let tree = |level: usize, list: &str, name: &str, wait: Json| {
        let leaf = serde_json::json!({"wait": wait});
        let deep = (0..level).fold(leaf, |below, n| serde_json::json!({name: [n], list: [below]}));
        serde_json::json!({"spec": {list: [deep]}})
    };
    // Each level is an object and a list; JSON has at most 127.
    let old = object("v1", &tree(60, "routes", "group_by", 1.into()));
    let text = serde_json::to_string(&old).unwrap();
    assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), old);
    let after = bundle.put(&old, "v1", None, &mut unmetered_budget()).unwrap();
    let got = bundle.get(after.stored(bundle.storage()), "v2", &mut unmetered_budget());
    assert_eq!(
        got.unwrap(),
        object("v2", &tree(60, "children", "groupBy", "1s".into()))
    );
    laws::get_put(&bundle, &after).unwrap();
}

fn differ(want: &Json, got: &Json) -> Result<(), String> {
    if want == got {
        Ok(())
    } else {
        Err(format!("\n  want {want}\n  got  {got}"))
    }
}
