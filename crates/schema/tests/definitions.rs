//! Real definitions (`../shared/testdata/crds`): each is valid, compiles, and validates generated
//! objects. Without them the test prints so and passes.
#![allow(clippy::print_stdout)]

use insula_api::{FieldPath, Json};
use insula_meter::Meter;
use insula_schema::{
    JsonPath, Structural, default_definition, drop_nulls, openapi_v2, openapi_v3, prune, validate, validate_definition,
    validate_definition_update,
};
use std::path::{Path, PathBuf};

fn definitions() -> Vec<(PathBuf, Json)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata/crds");
    let Ok(folders) = std::fs::read_dir(&root) else {
        println!("skipped: no definitions at {}", root.display());
        return Vec::new();
    };
    let files = folders
        .flat_map(|f| std::fs::read_dir(f.unwrap().path()).unwrap())
        .map(|f| f.unwrap().path());
    let mut found: Vec<(PathBuf, Json)> = files
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut definition: Json = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            default_definition(&mut definition);
            (path, definition)
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn real_definitions_are_valid() {
    for (path, definition) in definitions() {
        let errors: Vec<String> = validate_definition(&definition)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(errors.is_empty(), "{path:?}: {errors:#?}");
        assert!(
            validate_definition_update(&definition, &definition).is_empty(),
            "{path:?}"
        );
    }
}

#[test]
fn real_schemas_compile_and_publish() {
    for (path, definition) in definitions() {
        for version in definition.pointer("/spec/versions").and_then(Json::as_array).unwrap() {
            let schema = version.pointer("/schema/openAPIV3Schema").unwrap();
            let compiled = Structural::parse(schema, &FieldPath::new("s")).unwrap();
            Structural::parse_trusted(schema).unwrap();
            let root = compiled.root();
            assert!(root.fits(root), "{path:?} does not fit itself");
            assert!(root.property("metadata").is_some() || root.property("spec").is_some());
            for published in [openapi_v3(schema), openapi_v2(schema)] {
                assert_eq!(published["type"], "object", "{path:?}");
                let is_open = published.get("properties").is_none() && root.preserves_unknown();
                assert!(is_open || published["properties"]["metadata"].is_object(), "{path:?}");
            }
            let columns = version.get("additionalPrinterColumns").and_then(Json::as_array);
            for column in columns.into_iter().flatten() {
                let path = column["jsonPath"].as_str().unwrap();
                assert!(JsonPath::parse(path).is_ok(), "{path}");
            }
            // Pruning empties an object of unknown fields.
            let mut object =
                serde_json::json!({"apiVersion": "a/b", "kind": "K", "metadata": {"name": "n"}, "x-y": {"z": 1}});
            prune(&mut object, &compiled);
            drop_nulls(&mut object, &compiled);
            assert!(root.preserves_unknown() || object.get("x-y").is_none(), "{path:?}");
            validate(&object, &compiled, &Meter::unbounded());
        }
    }
}
