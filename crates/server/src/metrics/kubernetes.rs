//! Metrics by the names, labels and buckets of Kubernetes' API server, so that its dashboards and
//! alerts read this server.
//!
//! The edge measures a request once, and the same measurement is counted here and in the metrics
//! of our own. Names of resources are labels here, which tenants choose for definitions and
//! exports: these have a limited number of label sets, and requests beyond it are counted under
//! the resource `unexpected`, as Kubernetes does with a value that no list of allowed ones has.
//! Built-in kinds, a closed set, have no limit.

use insula_meter::ServerWork;
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use http::{Method, StatusCode};
use insula_api::{Verb, measure::Histogram};
use insula_edge::port::{DryRun, RequestScope, RequestedResource};
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::Counter, family, gauge::Gauge},
};

use super::{
    Class, Measured,
    labels::{Effect, EffectLabels},
    sources::{Families, LARGEST_RESOURCES_MAX, Sources, int},
};

/// Label sets of resources that are bound from exports, and as many of those that are defined in
/// a workspace. Each has some 30 series.
const LABELS_MAX: usize = 500;

/// Value of a label for requests beyond the limit.
const UNEXPECTED: &str = "unexpected";

/// Upper bounds of latencies in seconds: those of Kubernetes.
const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// Labels of `apiserver_request_duration_seconds`; `apiserver_request_total` has the code as well.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Labels<'a> {
    group: Cow<'a, str>,
    version: Cow<'a, str>,
    resource: Cow<'a, str>,
    subresource: Cow<'a, str>,
    verb: &'static str,
    scope: &'static str,
    dry_run: &'static str,
    component: &'static str,
}

impl<'a> Labels<'a> {
    fn of_request(request: &Measured<'a>) -> Self {
        match &request.kind.resource {
            Some(resource) => Labels {
                verb: request.kind.verb.map_or("other", |known| verb(known, resource.applies)),
                ..Labels::of_resource(resource)
            },
            None => Labels {
                group: Cow::default(),
                version: Cow::default(),
                resource: Cow::default(),
                subresource: request.check.into(),
                verb: method(request.method),
                scope: "",
                dry_run: "",
                component: "",
            },
        }
    }

    fn of_resource(resource: &'a RequestedResource) -> Self {
        Labels {
            group: resource.group.as_str().into(),
            version: resource.version.as_str().into(),
            resource: resource.resource.as_str().into(),
            subresource: resource.subresource.as_str().into(),
            verb: "",
            scope: match resource.scope {
                RequestScope::Resource => "resource",
                RequestScope::Namespace => "namespace",
                RequestScope::Cluster => "cluster",
            },
            dry_run: match resource.dry_run {
                DryRun::Absent => "",
                DryRun::All => "All",
                DryRun::Invalid => "invalid",
            },
            component: "apiserver",
        }
    }

    fn into_owned(self) -> Labels<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Labels {
            group: owned(self.group),
            version: owned(self.version),
            resource: owned(self.resource),
            subresource: owned(self.subresource),
            verb: self.verb,
            scope: self.scope,
            dry_run: self.dry_run,
            component: self.component,
        }
    }

    /// Replaces what tenants choose.
    fn beyond_limit(self) -> Self {
        Labels {
            group: Cow::default(),
            version: Cow::default(),
            resource: UNEXPECTED.into(),
            subresource: Cow::default(),
            ..self
        }
    }

    fn pairs(&self) -> [(&'static str, &str); 8] {
        [
            ("component", self.component),
            ("dry_run", self.dry_run),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", self.scope),
            ("subresource", &self.subresource),
            ("verb", self.verb),
            ("version", &self.version),
        ]
    }
}

/// Returns a verb as Kubernetes' metrics name it: the method, but for reads of many objects and
/// for configurations of server-side apply.
fn verb(verb: Verb, applies: bool) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch if applies => "APPLY",
        Verb::Patch => "PATCH",
        Verb::Delete | Verb::DeleteCollection => "DELETE",
    }
}

/// Returns the verb of a request that is about no object.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Answers to the requests of a label set.
#[derive(Debug)]
struct Answers {
    by_code: Mutex<BTreeMap<u16, u64>>,
    seconds: Histogram,
}

/// Requests by resource.
#[derive(Debug, Default)]
pub(super) struct Requests(RwLock<Series>);

#[derive(Debug, Default)]
struct Series {
    answers: HashMap<Labels<'static>, Arc<Answers>>,
    bound: usize,
    local: usize,
}

impl Series {
    /// Returns the answers of a label set, or those that stand for it beyond the limit.
    fn get_or_begin(&mut self, labels: Labels<'static>, class: Class) -> Arc<Answers> {
        if let Some(known) = self.answers.get(&labels) {
            return Arc::clone(known);
        }
        let limited = match class {
            Class::Bound => Some(&mut self.bound),
            Class::Local => Some(&mut self.local),
            Class::System | Class::Aggregated | Class::NonResource | Class::Call => None,
        };
        let labels = match limited {
            Some(used) if *used >= LABELS_MAX => labels.beyond_limit(),
            Some(used) => {
                *used += 1;
                labels
            }
            None => labels,
        };
        let begin = || {
            Arc::new(Answers {
                by_code: Mutex::default(),
                seconds: Histogram::new(SECONDS),
            })
        };
        Arc::clone(self.answers.entry(labels).or_insert_with(begin))
    }
}

impl Requests {
    /// Counts an answered request. Calls of gRPC and requests to extension servers are not among
    /// Kubernetes' either.
    pub(super) fn count(&self, request: &Measured<'_>, class: Class, code: StatusCode, took: Duration) {
        if matches!(class, Class::Aggregated | Class::Call) {
            return;
        }
        let labels = Labels::of_request(request);
        let known = {
            let series = self.0.read().unwrap_or_else(PoisonError::into_inner);
            // Seen as a map of borrowed labels: a label set that is known is not copied.
            let answers: &HashMap<Labels<'_>, Arc<Answers>> = &series.answers;
            answers.get(&labels).cloned()
        };
        let answers = known.unwrap_or_else(|| {
            let mut series = self.0.write().unwrap_or_else(PoisonError::into_inner);
            series.get_or_begin(labels.into_owned(), class)
        });
        answers.seconds.observe(took);
        let mut by_code = answers.by_code.lock().unwrap_or_else(PoisonError::into_inner);
        *by_code.entry(code.as_u16()).or_default() += 1;
    }

    /// Returns all label sets in their order.
    fn read(&self) -> BTreeMap<Labels<'static>, Arc<Answers>> {
        let series = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let answers = series.answers.iter();
        answers
            .map(|(labels, answers)| (labels.clone(), Arc::clone(answers)))
            .collect()
    }

    fn write(&self, out: &mut Families<'_>) -> fmt::Result {
        let series = self.read();
        let help = "Requests answered, by verb, resource, scope and code";
        let mut total = out.counters("apiserver_request", help)?;
        // Every list is answered from memory: there is no other way to the objects.
        let mut lists: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (labels, answers) in &series {
            let by_code = answers.by_code.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for (code, count) in by_code {
                let text = code.to_string();
                let [a, b, c, d, e, f, g, h] = labels.pairs();
                total.count(&[("code", &*text), a, b, c, d, e, f, g, h], count)?;
                if labels.verb == "LIST" && code == StatusCode::OK.as_u16() {
                    *lists.entry((&labels.group, &labels.resource)).or_default() += count;
                }
            }
        }
        let help = "Time to answer, by verb, resource and scope; for watches to begin answering";
        let mut seconds = out.seconds("apiserver_request_duration", help)?;
        for (labels, answers) in &series {
            seconds.spread(&labels.pairs(), &answers.seconds.read())?;
        }
        let help = "Lists answered from memory, as all are, by resource";
        let mut served = out.counters("apiserver_cache_list", help)?;
        lists.into_iter().try_for_each(|((group, resource), count)| {
            served.count(&[("group", group), ("index", ""), ("resource", resource)], count)
        })
    }
}

/// Collector of these metrics.
pub(super) struct Kubernetes {
    pub(super) requests: Arc<Requests>,
    pub(super) in_flight: family::Family<EffectLabels, Gauge>,
    pub(super) handshake_failures: Counter,
    pub(super) sources: Arc<OnceLock<Sources>>,
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes").finish_non_exhaustive()
    }
}

impl Collector for Kubernetes {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut Families(encoder);
        self.requests.write(out)?;
        let help = "Requests being answered, by kind";
        let mut in_flight = out.gauges("apiserver_current_inflight_requests", help)?;
        for (kind, effect) in [("mutating", Effect::Mutating), ("readOnly", Effect::ReadOnly)] {
            let count = self.in_flight.get_or_create(&EffectLabels { effect }).get();
            in_flight.level(&[("request_kind", kind)], count)?;
        }
        let help = "TLS handshakes that failed or took too long";
        out.counter("apiserver_tls_handshake_errors", help, self.handshake_failures.get())?;
        match self.sources.get() {
            Some(sources) => write_objects(out, sources),
            None => Ok(()),
        }
    }
}

/// Writes the numbers of stored objects by resource, those of all exporters of a name together.
fn write_objects(out: &mut Families<'_>, sources: &Sources) -> fmt::Result {
    let Some(api) = sources.api.upgrade() else {
        return Ok(());
    };
    let resources = api.registry.store.latest().for_server(ServerWork::Housekeeping);
    let resources = resources.largest_resources(LARGEST_RESOURCES_MAX);
    let help = "Objects of the resources with the most objects";
    let mut by_resource = out.gauges("apiserver_storage_objects", help)?;
    for (resource, count) in &resources {
        by_resource.level(&[("resource", &*resource.qualified())], int(*count))?;
    }
    let mut by_group = out.gauges("apiserver_resource_objects", help)?;
    for (resource, count) in &resources {
        let labels = [("group", &*resource.group), ("resource", &*resource.resource)];
        by_group.level(&labels, int(*count))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use insula_edge::port::{RequestKind, ResourceClass};
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    fn kind(resource: &str, verb: Verb, class: ResourceClass) -> RequestKind {
        RequestKind {
            verb: Some(verb),
            class,
            resource: Some(Box::new(RequestedResource {
                group: "example.io".to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
                subresource: String::new(),
                scope: RequestScope::Namespace,
                applies: false,
                dry_run: DryRun::Absent,
            })),
        }
    }

    fn count(requests: &Requests, kind: &RequestKind, check: &'static str, code: u16) {
        let request = Measured {
            kind,
            method: &Method::GET,
            check,
        };
        let code = StatusCode::from_u16(code).unwrap();
        requests.count(&request, Class::from(kind.class), code, Duration::from_millis(30));
    }

    fn text(requests: Arc<Requests>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Kubernetes {
            requests,
            in_flight: family::Family::default(),
            handshake_failures: Counter::default(),
            sources: Arc::default(),
        }));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    fn assert_lines(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|got| got == *line), "{line} in\n{text}");
        }
    }

    #[test]
    fn requests_have_the_labels_of_kubernetes() {
        let requests = Arc::new(Requests::default());
        let mut list = kind("widgets", Verb::List, ResourceClass::Local);
        count(&requests, &list, "", 200);
        count(&requests, &list, "", 200);
        count(&requests, &list, "", 410);
        list.verb = Some(Verb::Patch);
        if let Some(resource) = &mut list.resource {
            (resource.applies, resource.dry_run) = (true, DryRun::All);
            (resource.scope, resource.subresource) = (RequestScope::Resource, "status".to_owned());
        }
        count(&requests, &list, "", 201);
        count(&requests, &RequestKind::default(), "/readyz", 200);
        let call = RequestKind {
            class: ResourceClass::Call,
            ..RequestKind::default()
        };
        count(&requests, &call, "", 200);
        assert_lines(
            &text(requests),
            &[
                "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"example.io\",\
                 resource=\"widgets\",scope=\"namespace\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 2",
                "apiserver_request_total{code=\"201\",component=\"apiserver\",dry_run=\"All\",group=\"example.io\",\
                 resource=\"widgets\",scope=\"resource\",subresource=\"status\",verb=\"APPLY\",version=\"v1\"} 1",
                "apiserver_request_total{code=\"200\",component=\"\",dry_run=\"\",group=\"\",resource=\"\",scope=\"\",\
                 subresource=\"/readyz\",verb=\"GET\",version=\"\"} 1",
                "apiserver_request_duration_seconds_bucket{le=\"0.05\",component=\"apiserver\",dry_run=\"\",\
                 group=\"example.io\",resource=\"widgets\",scope=\"namespace\",subresource=\"\",verb=\"LIST\",\
                 version=\"v1\"} 3",
                "apiserver_cache_list_total{group=\"example.io\",index=\"\",resource=\"widgets\"} 2",
                "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0",
                "apiserver_tls_handshake_errors_total 0",
            ],
        );
    }

    /// One tenant's definitions take no series from bound or built-in kinds, and no count is lost.
    #[test]
    fn label_sets_that_tenants_choose_have_a_limit() {
        let requests = Arc::new(Requests::default());
        for index in 0..LABELS_MAX + 7 {
            let chosen = kind(&format!("r{index}"), Verb::Get, ResourceClass::Local);
            count(&requests, &chosen, "", 200);
        }
        count(&requests, &kind("bound", Verb::Get, ResourceClass::Bound), "", 200);
        count(&requests, &kind("system", Verb::Get, ResourceClass::System), "", 200);
        // Known label sets go on.
        count(&requests, &kind("r0", Verb::Get, ResourceClass::Local), "", 200);
        let text = text(requests);
        let total = |resource: &str| -> u64 {
            let label = format!("resource=\"{resource}\"");
            let lines = text.lines().filter(|line| line.starts_with("apiserver_request_total{"));
            let values = lines.filter(|line| line.contains(&label));
            values
                .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
                .sum()
        };
        assert_eq!((total(UNEXPECTED), total("r0")), (7, 2));
        assert_eq!((total("bound"), total("system")), (1, 1));
        let series = text.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        assert_eq!(series.count(), LABELS_MAX + 3);
    }
}
