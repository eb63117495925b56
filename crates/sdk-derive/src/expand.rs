//! Expansion of the derive macro.

use crate::{
    arguments::{self, Arguments, Column},
    lint,
};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Ident, Lit, LitStr, Meta, Result, Type};

/// The fields of a resource.
struct Shape<'a> {
    metadata: &'a Field,
    /// All other fields, with their names in JSON.
    others: Vec<(&'a Field, String)>,
}

/// Returns the implementations for a type.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let arguments = arguments::parse(input)?;
    let shape = shape(input)?;
    let names = names(input, &arguments)?;
    let definition = definition(input, &arguments)?;
    let description = description(input, &arguments, &shape, &names);
    let (kube, serde) = (kube(input, &shape, &names), serde(input, &shape, &names));
    Ok(quote! {
        const _: () = {
            #description
            #kube
            #serde
            #definition
        };
    })
}

/// The names of a resource, checked.
struct Names {
    group: String,
    version: String,
    kind: String,
    plural: String,
    namespaced: bool,
}

fn names(input: &DeriveInput, arguments: &Arguments) -> Result<Names> {
    let given = |text: &Option<LitStr>, name: &str| {
        let missing = || {
            let why = format!("missing `#[resource({name} = \"…\")]`");
            Error::new(input.ident.span(), why)
        };
        text.as_ref()
            .ok_or_else(missing)
            .map(|text| (text.value(), text.span()))
    };
    let or = |text: &Option<LitStr>, otherwise: String| match text {
        Some(text) => (text.value(), text.span()),
        None => (otherwise, input.ident.span()),
    };
    let checked = |(text, span): (String, Span), mistake: fn(&str) -> Option<String>| match mistake(&text) {
        Some(why) => Err(Error::new(span, why)),
        None => Ok(text),
    };
    let rule = if arguments.unserved { lint::hub } else { lint::version };
    let kind = checked(or(&arguments.kind, input.ident.to_string()), lint::kind)?;
    let plural = or(&arguments.plural, lint::plural_of(&kind));
    let namespaced = match &arguments.scope {
        None => true,
        Some(scope) if scope.value() == "Namespaced" => true,
        Some(scope) if scope.value() == "Cluster" => false,
        Some(scope) => return Err(Error::new(scope.span(), "the scope is `Namespaced` or `Cluster`")),
    };
    Ok(Names {
        group: checked(given(&arguments.group, "group")?, lint::group)?,
        version: checked(given(&arguments.version, "version")?, rule)?,
        plural: checked(plural, lint::plural)?,
        kind,
        namespaced,
    })
}

fn shape(input: &DeriveInput) -> Result<Shape<'_>> {
    let why = "a resource is a struct with the fields `metadata: ObjectMeta`, `spec`, and `status` if it has one";
    let refused = || Error::new(input.ident.span(), why);
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.ident.span(), "a resource has no type parameters"));
    }
    let Data::Struct(data) = &input.data else {
        return Err(refused());
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(refused());
    };
    let (mut metadata, mut others) = (None, Vec::new());
    for field in &fields.named {
        let name = field.ident.as_ref().map(Ident::to_string).unwrap_or_default();
        match name.as_str() {
            "metadata" => metadata = Some(field),
            name => others.push((field, camel(name.trim_start_matches("r#")))),
        }
    }
    let metadata = metadata.ok_or_else(refused)?;
    Ok(Shape { metadata, others })
}

/// Returns a name of Rust as one of JSON: `snake_case` as `snakeCase`.
fn camel(name: &str) -> String {
    let mut out = String::new();
    let mut up = false;
    for c in name.chars() {
        match c {
            '_' => up = !out.is_empty(),
            c if up => {
                out.extend(c.to_uppercase());
                up = false;
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns the text of a type's or field's documentation.
fn documentation(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    let lines: Vec<String> = attributes.iter().filter_map(line).collect();
    let paragraphs = lines.split(|line| line.is_empty());
    let paragraphs: Vec<String> = paragraphs.map(|lines| lines.join(" ")).collect();
    paragraphs.join("\n\n").trim().to_owned()
}

/// Returns true for an `Option`.
fn is_option(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Option"),
        _ => false,
    }
}

fn has_default(field: &Field) -> bool {
    let mut found = false;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("serde")) {
        // Serde reports what it does not understand.
        let _ = attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("default");
            if let Ok(value) = meta.value() {
                value.parse::<Expr>()?;
            }
            Ok(())
        });
    }
    found
}

fn description(input: &DeriveInput, arguments: &Arguments, shape: &Shape<'_>, names: &Names) -> TokenStream {
    let Names {
        group,
        version,
        kind,
        plural,
        namespaced,
    } = names;
    let (short, categories, selectable) = (&arguments.short, &arguments.categories, &arguments.selectable);
    let text = documentation(&input.attrs);
    let has_status = shape.others.iter().any(|(_, name)| name == "status");
    let served = !arguments.unserved;
    let deprecated = option(arguments.deprecated.as_ref());
    let scale = match &arguments.scale {
        None => quote!(None),
        Some((spec, status, selector)) => {
            let selector = option(selector.as_ref());
            quote!(Some((#spec, #status, #selector)))
        }
    };
    let columns = arguments.columns.iter().map(|column| {
        let Column {
            name,
            path,
            kind,
            description,
            priority,
        } = column;
        let (kind, description) = (option(kind.as_ref()), option(description.as_ref()));
        quote!(private::Column {
            name: #name, path: #path, kind: #kind, description: #description, priority: #priority,
        })
    });
    let fields = shape.others.iter().map(|(field, name)| {
        let (ty, text) = (&field.ty, documentation(&field.attrs));
        let required = name != "status" && !is_option(ty) && !has_default(field);
        quote!(private::Field { name: #name, description: #text, required: #required, schema: private::schema::<#ty> })
    });
    quote! {
        use ::insula_sdk::__private as private;
        static DESCRIPTION: private::Description = private::Description {
            group: #group, version: #version, kind: #kind, plural: #plural, namespaced: #namespaced,
            short: &[#(#short),*], categories: &[#(#categories),*], selectable: &[#(#selectable),*],
            description: #text, status: #has_status, served: #served, deprecated: #deprecated, scale: #scale,
            columns: &[#(#columns),*], fields: &[#(#fields),*],
        };
    }
}

fn option(text: Option<&LitStr>) -> TokenStream {
    match text {
        Some(text) => quote!(Some(#text)),
        None => quote!(None),
    }
}

fn kube(input: &DeriveInput, shape: &Shape<'_>, names: &Names) -> TokenStream {
    let ident = &input.ident;
    let metadata = &shape.metadata.ident;
    let scope = match names.namespaced {
        true => quote!(private::kube::core::NamespaceResourceScope),
        false => quote!(private::kube::core::ClusterResourceScope),
    };
    let crd = format!("{}.{}", names.plural, names.group);
    quote! {
        impl private::kube::Resource for #ident {
            type DynamicType = ();
            type Scope = #scope;
            fn kind(_: &()) -> ::std::borrow::Cow<'_, str> { DESCRIPTION.kind.into() }
            fn group(_: &()) -> ::std::borrow::Cow<'_, str> { DESCRIPTION.group.into() }
            fn version(_: &()) -> ::std::borrow::Cow<'_, str> { DESCRIPTION.version.into() }
            fn plural(_: &()) -> ::std::borrow::Cow<'_, str> { DESCRIPTION.plural.into() }
            fn meta(&self) -> &private::ObjectMeta { &self.#metadata }
            fn meta_mut(&mut self) -> &mut private::ObjectMeta { &mut self.#metadata }
        }
        impl private::kube::CustomResourceExt for #ident {
            fn crd() -> private::CustomResourceDefinition { DESCRIPTION.definition() }
            fn crd_name() -> &'static str { #crd }
            fn api_resource() -> private::kube::core::ApiResource {
                private::kube::core::ApiResource::erase::<Self>(&())
            }
            fn shortnames() -> &'static [&'static str] { DESCRIPTION.short }
        }
    }
}

fn serde(input: &DeriveInput, shape: &Shape<'_>, names: &Names) -> TokenStream {
    let ident = &input.ident;
    let api_version = format!("{}/{}", names.group, names.version);
    let entries = shape.others.iter().map(|(field, name)| {
        let ident = &field.ident;
        match is_option(&field.ty) {
            true => quote!(if let Some(value) = &self.#ident { map.serialize_entry(#name, value)?; }),
            false => quote!(map.serialize_entry(#name, &self.#ident)?;),
        }
    });
    let fields = shape.others.iter().map(|(field, name)| {
        let (ident, ty) = (&field.ident, &field.ty);
        let serde = field
            .attrs
            .iter()
            .filter(|attribute| attribute.path().is_ident("serde"));
        let default = (name == "status" && !has_default(field)).then(|| quote!(#[serde(default)]));
        quote!(#default #(#serde)* #[serde(rename = #name)] #ident: #ty)
    });
    let idents: Vec<_> = shape.others.iter().map(|(field, _)| &field.ident).collect();
    let metadata = &shape.metadata.ident;
    quote! {
        impl private::serde::Serialize for #ident {
            fn serialize<S: private::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use private::serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("apiVersion", #api_version)?;
                map.serialize_entry("kind", DESCRIPTION.kind)?;
                map.serialize_entry("metadata", &self.#metadata)?;
                #(#entries)*
                map.end()
            }
        }
        impl<'de> private::serde::Deserialize<'de> for #ident {
            fn deserialize<D: private::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(private::serde::Deserialize)]
                #[serde(crate = "::insula_sdk::__private::serde")]
                struct Read {
                    #[serde(default)]
                    metadata: private::ObjectMeta,
                    #(#fields,)*
                }
                let read = <Read as private::serde::Deserialize>::deserialize(deserializer)?;
                Ok(Self { #metadata: read.metadata, #(#idents: read.#idents,)* })
            }
        }
    }
}

fn definition(input: &DeriveInput, arguments: &Arguments) -> Result<TokenStream> {
    let ident = &input.ident;
    let strategy = arguments.strategy.iter();
    let versions = arguments.versions.iter().map(|(version, strategy)| match strategy {
        Some(strategy) => quote!(.version_with::<#version>(#strategy)),
        None => quote!(.version::<#version>()),
    });
    for (name, path) in &arguments.subresources {
        if let Some(why) = lint::subresource(&name.replace('_', "-")) {
            return Err(Error::new(path.segments[0].ident.span(), why));
        }
    }
    let subresources = arguments.subresources.iter().map(|(name, path)| {
        let name = name.replace('_', "-");
        quote!(.subresource(#name, #path))
    });
    Ok(quote! {
        impl ::insula_sdk::Described for #ident {
            fn described() -> ::insula_sdk::Kind<Self> {
                ::insula_sdk::Kind::<Self>::new()
                    #(.strategy(#strategy))*
                    #(#versions)*
                    #(#subresources)*
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn refusal(input: &DeriveInput) -> String {
        expand(input).unwrap_err().to_string()
    }

    fn robot(arguments: &TokenStream) -> DeriveInput {
        parse_quote! {
            #[resource(#arguments)]
            struct Robot { metadata: ObjectMeta, spec: RobotSpec, status: Option<RobotStatus> }
        }
    }

    #[test]
    fn a_resource_needs_group_and_version_alone() {
        let input = robot(&quote!(group = "fleet.example.com", version = "v1"));
        let made = expand(&input).unwrap().to_string();
        for text in [
            "\"robots.fleet.example.com\"",
            "\"fleet.example.com/v1\"",
            "NamespaceResourceScope",
        ] {
            assert!(made.contains(text), "{text} is missing in {made}");
        }
    }

    #[test]
    fn mistakes_name_the_rule() {
        for (arguments, word) in [
            (quote!(version = "v1"), "missing `#[resource(group"),
            (quote!(group = "Fleet.example.com", version = "v1"), "capital letters"),
            (
                quote!(group = "f.example.com", version = "one"),
                "alpha, beta or stable",
            ),
            (
                quote!(group = "f.example.com", version = "v1", kind = "robot"),
                "UpperCamel",
            ),
            (
                quote!(group = "f.example.com", version = "v1", plural = "Robots"),
                "plural",
            ),
            (
                quote!(group = "f.example.com", version = "v1", scope = "Global"),
                "`Namespaced` or `Cluster`",
            ),
            (
                quote!(group = "f.example.com", version = "v1", colour = "red"),
                "unknown argument `colour`",
            ),
            (
                quote!(group = "f.example.com", version = "v1", columns(Size = "spec.size")),
                "begins with a dot",
            ),
            (
                quote!(group = "f.example.com", version = "v1", subresources(scale)),
                "expected `status`",
            ),
            (
                quote!(group = "f.example.com", version = "v1", subresources(Charge = Charge)),
                "lower-case",
            ),
        ] {
            assert!(refusal(&robot(&arguments)).contains(word), "{arguments}: {word}");
        }
    }

    #[test]
    fn mistakes_in_names_and_arguments_name_the_rule() {
        for (arguments, word) in [
            (quote!(group = "f.example.com"), "missing `#[resource(version"),
            (quote!(group = "fleet", version = "v1"), "has no domain"),
            (quote!(group = "f.k8s.io", version = "v1"), "belong to Kubernetes"),
            (quote!(group = "f..com", version = "v1"), "lower-case letters"),
            (
                quote!(group = "f.example.com", version = "In Ternal", unserved),
                "lower-case letters",
            ),
            (
                quote!(group = "f.example.com", version = "v1", strategy = "Hooks"),
                "`strategy` is not written so",
            ),
            (
                quote!(group = "f.example.com", version = "v1", short(rb)),
                "texts in quotes",
            ),
            (
                quote!(group = "f.example.com", version = "v1", versions("v1beta1")),
                "a type without quotes",
            ),
            (
                quote!(group = "f.example.com", version = "v1", versions(old::Robot(hub = A))),
                "a version takes",
            ),
            (
                quote!(
                    group = "f.example.com",
                    version = "v1",
                    columns(Size(path = ".spec.size", width = 3))
                ),
                "a column takes",
            ),
            (
                quote!(
                    group = "f.example.com",
                    version = "v1",
                    subresources(scale(spec = ".spec.size"))
                ),
                "scale needs",
            ),
            (
                quote!(group = "f.example.com", version = "v1", subresources("charge")),
                "a name without quotes",
            ),
        ] {
            assert!(refusal(&robot(&arguments)).contains(word), "{arguments}: {word}");
        }
    }

    #[test]
    fn a_version_that_is_not_served_may_have_any_name() {
        let input = robot(&quote!(group = "f.example.com", version = "internal", unserved));
        assert!(expand(&input).is_ok());
    }

    #[test]
    fn a_resource_is_a_struct_with_metadata() {
        for input in [
            parse_quote!(
                #[resource(group = "f.example.com", version = "v1")]
                enum Robot {
                    A,
                }
            ),
            parse_quote!(
                #[resource(group = "f.example.com", version = "v1")]
                struct Robot {
                    spec: Spec,
                }
            ),
            parse_quote!(
                #[resource(group = "f.example.com", version = "v1")]
                struct Robot(Spec);
            ),
        ] {
            assert!(refusal(&input).contains("metadata: ObjectMeta"));
        }
    }

    #[test]
    fn a_resource_has_no_type_parameters() {
        let input = parse_quote! {
            #[resource(group = "f.example.com", version = "v1")]
            struct Robot<T> { metadata: ObjectMeta, spec: T }
        };
        assert_eq!(refusal(&input), "a resource has no type parameters");
    }

    #[test]
    fn names_of_json_are_camel_case() {
        for (name, want) in [("spec", "spec"), ("binary_data", "binaryData"), ("a_b_c", "aBC")] {
            assert_eq!(camel(name), want);
        }
    }
}
