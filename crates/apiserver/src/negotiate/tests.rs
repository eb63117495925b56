use super::*;
use crate::status;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const V1: MetaVersion = MetaVersion::V1;

/// The negotiated form; `None` for 406.
type Form = Option<(Format, Representation)>;

fn got(header: &str, supported: Supported) -> Form {
    accept(Some(header), supported, false)
        .ok()
        .map(|n| (n.format, n.representation))
}

const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Values of `Accept`, and the form that is chosen among the supported ones.
const RANGES: &[(&str, Supported, Form)] = {
    use Format::{Json, Protobuf, Yaml};
    use Representation::{AggregatedDiscovery, Object, PartialMetadata, PartialMetadataList, Table};
    &[
        ("application/json", Supported::Object, Some((Json, Object))),
        ("*/*", Supported::Object, Some((Json, Object))),
        ("application/*", Supported::Object, Some((Json, Object))),
        ("application/yaml", Supported::Object, Some((Yaml, Object))),
        ("application/yaml", Supported::Watch, None),
        ("text/csv", Supported::Object, None),
        ("no media type", Supported::Object, None),
        (
            "text/csv, application/yaml;q=0.1, application/json",
            Supported::Object,
            Some((Json, Object)),
        ),
        ("*/*, application/yaml", Supported::Object, Some((Yaml, Object))),
        (
            "application/json;q=0, application/yaml",
            Supported::Object,
            Some((Yaml, Object)),
        ),
        ("application/vnd.kubernetes.protobuf", Supported::Object, None),
        (
            "application/vnd.kubernetes.protobuf,application/json",
            Supported::List,
            Some((Json, Object)),
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            Supported::Watch,
            Some((Protobuf, PartialMetadata(V1))),
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            Supported::List,
            Some((Protobuf, PartialMetadataList(V1))),
        ),
        (
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            Supported::List,
            None,
        ),
        (TABLE, Supported::List, Some((Json, Table(V1)))),
        (TABLE, Supported::Document, None),
        (
            "application/yaml;as=Table;v=v1;g=meta.k8s.io",
            Supported::List,
            Some((Yaml, Table(V1))),
        ),
        (
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            Supported::List,
            Some((Json, Table(MetaVersion::V1Beta1))),
        ),
        ("application/json;as=Table;v=v7;g=meta.k8s.io", Supported::List, None),
        (
            "application/json;as=Table;v=v7;g=meta.k8s.io,application/json",
            Supported::List,
            Some((Json, Object)),
        ),
        ("application/json;as=Chair;v=v1;g=meta.k8s.io", Supported::List, None),
        (
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Supported::Object,
            Some((Json, PartialMetadata(V1))),
        ),
        (
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Supported::Watch,
            Some((Json, PartialMetadata(V1))),
        ),
        (
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Supported::List,
            None,
        ),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Supported::List,
            Some((Json, PartialMetadataList(V1))),
        ),
        (DISCOVERY, Supported::Discovery, Some((Json, AggregatedDiscovery))),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer",
            Supported::Discovery,
            Some((Json, AggregatedDiscovery)),
        ),
        (
            "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json",
            Supported::Discovery,
            Some((Json, Object)),
        ),
        (DISCOVERY, Supported::Document, None),
    ]
};

#[test]
fn the_first_supported_media_range_is_chosen() {
    use Format::Json;
    for (header, supported, want) in RANGES {
        assert_eq!(got(header, *supported), *want, "{header} for {supported:?}");
    }
    assert_eq!(accept(None, Supported::List, false).map(|n| n.format).ok(), Some(Json));
    assert_eq!(
        accept(Some(""), Supported::List, false).map(|n| n.format).ok(),
        Some(Json)
    );
}

#[test]
fn refusals_list_what_is_spoken() {
    let refused = accept(Some("text/csv"), Supported::Object, false).expect_err("is refused");
    assert_eq!(status::code(&refused), 406);
    assert_eq!(
        refused.to_string(),
        "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
    assert_eq!(accept_error(Some("application/yaml;as=Chair")), Format::Yaml);
    assert_eq!(accept_error(Some("text/csv")), Format::Json);
}

#[test]
fn bodies_are_json_or_yaml() {
    let rows = [
        (None, Some(Format::Json)),
        (Some(""), Some(Format::Json)),
        (Some("application/json"), Some(Format::Json)),
        (Some("application/json; charset=utf-8"), Some(Format::Json)),
        (Some("Application/YAML"), Some(Format::Yaml)),
        (Some("application/json; charset"), None),
        (Some("text/csv"), None),
        (Some("application/merge-patch+json"), None),
        (Some("application/vnd.kubernetes.protobuf"), Some(Format::Protobuf)),
        (Some("json"), None),
    ];
    for (header, want) in rows {
        assert_eq!(body_format(header).ok(), want, "{header:?}");
    }
}

#[test]
fn patches_by_media_type() {
    let got = |header, patches| patch_type(Some(header), patches).ok();
    assert_eq!(
        got("application/merge-patch+json; charset=utf-8", Patches::Custom),
        Some(PatchType::Merge)
    );
    assert_eq!(got("application/strategic-merge-patch+json", Patches::Custom), None);
    assert_eq!(
        got("application/strategic-merge-patch+json", Patches::BuiltIn),
        Some(PatchType::StrategicMerge)
    );
    assert_eq!(
        got("application/strategic-merge-patch+json", Patches::KnownGroup),
        Some(PatchType::StrategicMerge)
    );
    let refused = patch_type(Some("application/json"), Patches::Custom).expect_err("is refused");
    assert_eq!(
        (status::code(&refused), &*refused.to_string()),
        (
            415,
            "the body of the request was in an unknown format - accepted media types include: \
            application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    );
    let refused = patch_type(None, Patches::BuiltIn).expect_err("is refused");
    assert_eq!(refused.to_string(), "415: Unsupported Media Type");
}

#[test]
fn people_get_indented_json() {
    for (query, agent, want) in [
        (None, None, false),
        (Some("true"), None, true),
        (Some("0"), Some("curl/8"), false),
        (Some("maybe"), Some("curl/8"), false),
        (Some(""), Some("curl/8"), true),
        (None, Some("Mozilla/5.0 (X11)"), true),
        (None, Some("kubectl/v1.32"), false),
    ] {
        assert_eq!(pretty(query, agent), want, "{query:?} {agent:?}");
    }
}

#[test]
fn media_types_with_quotes() {
    let media = MediaType::parse(r#"application/json; a="x;y,z"; B=c"#).expect("parses");
    assert_eq!((media.param("a"), media.param("b")), (Some("x;y,z"), Some("c")));
    assert_eq!(
        media_ranges(Some(r#"application/json;a="x,y", application/yaml"#)).len(),
        2
    );
}
