import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.io.FileInputStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** fabric8's client, which operators on the Java Operator SDK and Quarkus use. */
final class Fabric8 {
  private final KubernetesClient client = new KubernetesClientBuilder().build();

  void run(String definition) throws Exception {
    Check.step("discovery", this::discovers);
    Check.step("typed", this::typed);
    Check.step("apply", this::applies);
    Check.step("pages", this::pages);
    Check.step("informer", this::informs);
    Check.step("versions", this::versions);
    Check.step("definition", () -> defines(definition));
    Check.step("namespace", this::namespaces);
    Check.step("election", this::elects);
  }

  private ConfigMap map(String name, String key, String value) {
    var metadata = new ObjectMetaBuilder().withName(name).withNamespace("default").build();
    return new ConfigMapBuilder().withMetadata(metadata).addToData(key, value).build();
  }

  private GenericKubernetesResource custom(String version, String kind, String name, Map<String, Object> spec) {
    var made = new GenericKubernetesResource();
    made.setApiVersion(version);
    made.setKind(kind);
    made.setMetadata(new ObjectMetaBuilder().withName(name).withNamespace("default").build());
    made.setAdditionalProperty("spec", spec);
    return made;
  }

  private static void refused(int code, Runnable call) {
    try {
      call.run();
    } catch (KubernetesClientException refusal) {
      Check.check(refusal.getCode() == code, refusal);
      return;
    }
    throw new AssertionError("not refused with " + code);
  }

  private void discovers() {
    Check.check(client.getKubernetesVersion().getMajor().equals("1"), "version");
    Check.check(client.supports("example.io/v2", "Widget"), "widgets");
    Check.check(client.hasApiGroup("example.io", true), "group");
  }

  private void typed() {
    var maps = client.configMaps().inNamespace("default");
    var made = maps.resource(map("typed", "a", "b")).create();
    refused(409, () -> maps.resource(map("typed", "a", "b")).create());
    maps.withName("typed").patch(PatchContext.of(PatchType.STRATEGIC_MERGE), "{\"data\":{\"c\":\"d\"}}");
    maps.withName("typed").patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\":{\"e\":\"f\"}}");
    maps.withName("typed").patch(PatchContext.of(PatchType.JSON), "[{\"op\":\"remove\",\"path\":\"/data/a\"}]");
    Check.check(maps.withName("typed").get().getData().equals(Map.of("c", "d", "e", "f")), "patched");
    refused(409, () -> maps.resource(made).lockResourceVersion(made.getMetadata().getResourceVersion()).update());
    maps.resource(map("dry", "a", "b")).dryRun().create();
    Check.check(maps.withName("dry").get() == null, "a dry run wrote");
    maps.withName("typed").withTimeout(20, TimeUnit.SECONDS).delete();
    Check.check(maps.withName("typed").get() == null, "it is still there");
  }

  private void applies() {
    var maps = client.configMaps().inNamespace("default");
    maps.resource(map("applied", "a", "b")).create();
    refused(409, () -> maps.resource(map("applied", "a", "c")).fieldManager("other").serverSideApply());
    var applied = maps.resource(map("applied", "a", "c")).fieldManager("other").forceConflicts().serverSideApply();
    Check.check(applied.getData().get("a").equals("c"), applied);
  }

  private void pages() {
    var maps = client.configMaps().inNamespace("default");
    for (int index = 0; index < 5; index++) {
      maps.resource(map("page-" + index, "a", "b")).create();
    }
    var first = maps.list(new ListOptionsBuilder().withLimit(2L).build());
    Check.check(first.getItems().size() == 2 && first.getMetadata().getContinue() != null, first);
    var next = new ListOptionsBuilder().withLimit(2L).withContinue(first.getMetadata().getContinue()).build();
    Check.check(maps.list(next).getItems().size() == 2, "the second page");
    Check.check(maps.withField("metadata.name", "page-1").list().getItems().size() == 1, "a field selector");
  }

  private void informs() throws Exception {
    var maps = client.configMaps().inNamespace("default");
    List<String> seen = new CopyOnWriteArrayList<>();
    var handler =
        new ResourceEventHandler<ConfigMap>() {
          @Override
          public void onAdd(ConfigMap map) {
            seen.add("add " + map.getMetadata().getName());
          }

          @Override
          public void onUpdate(ConfigMap before, ConfigMap map) {
            seen.add("update " + map.getMetadata().getName());
          }

          @Override
          public void onDelete(ConfigMap map, boolean unknown) {
            seen.add("delete " + map.getMetadata().getName());
          }
        };
    try (var informer = maps.inform(handler)) {
      Check.check(informer.hasSynced(), "not in step");
      maps.resource(map("informed", "a", "b")).create();
      maps.resource(map("informed", "a", "c")).update();
      maps.withName("informed").delete();
      Check.until("all events came", () -> seen.containsAll(List.of("add informed", "update informed", "delete informed")));
    }
  }

  private void versions() {
    var older = client.genericKubernetesResources("example.io/v1", "Widget").inNamespace("default");
    var newer = client.genericKubernetesResources("example.io/v2", "Widget").inNamespace("default");
    Map<String, Object> spec = Map.of("name", Map.of("first", "Grace"), "more", "kept");
    newer.resource(custom("example.io/v2", "Widget", "grace", spec)).create();
    older
        .withName("grace")
        .edit(
            widget -> {
              Map<String, Object> shown = widget.get("spec");
              shown.put("firstName", "Ada");
              return widget;
            });
    var read = newer.withName("grace").get();
    Check.check("kept".equals(read.get("spec", "more")), read);
    Check.check("Ada".equals(read.get("spec", "name", "first")), read);
  }

  private void defines(String file) throws Exception {
    var definitions = client.apiextensions().v1().customResourceDefinitions();
    var definition = definitions.load(new FileInputStream(file)).item();
    client.resource(definition).serverSideApply();
    definitions
        .withName(definition.getMetadata().getName())
        .waitUntilCondition(
            found -> {
              // Null until the first condition is written, in a Kubernetes server as here.
              var conditions = found == null || found.getStatus() == null ? null : found.getStatus().getConditions();
              return conditions != null
                  && conditions.stream()
                      .anyMatch(is -> is.getType().equals("Established") && is.getStatus().equals("True"));
            },
            30,
            TimeUnit.SECONDS);
    var lamps = client.genericKubernetesResources("house.example.io/v1", "Lamp").inNamespace("default");
    lamps.resource(custom("house.example.io/v1", "Lamp", "desk", Map.of("watts", 5, "replicas", 1))).create();
    refused(422, () -> lamps.resource(custom("house.example.io/v1", "Lamp", "dark", Map.of("watts", -5))).create());
    lamps.withName("desk").scale(3);
    lamps
        .withName("desk")
        .editStatus(
            lamp -> {
              lamp.setAdditionalProperty("status", Map.of("phase", "On"));
              return lamp;
            });
    var lamp = lamps.withName("desk").get();
    Check.check(Integer.valueOf(3).equals(lamp.get("spec", "replicas")), lamp);
    Check.check("On".equals(lamp.get("status", "phase")), lamp);
  }

  private void namespaces() {
    var metadata = new ObjectMetaBuilder().withName("java").build();
    var namespaces = client.namespaces();
    namespaces.resource(new NamespaceBuilder().withMetadata(metadata).build()).create();
    namespaces.withName("java").withTimeout(30, TimeUnit.SECONDS).delete();
    Check.check(namespaces.withName("java").get() == null, "the namespace is still there");
  }

  private void elects() throws Exception {
    var leads = new CountDownLatch(1);
    var config =
        new LeaderElectionConfigBuilder()
            .withName("check")
            .withLeaseDuration(Duration.ofSeconds(15))
            .withRenewDeadline(Duration.ofSeconds(10))
            .withRetryPeriod(Duration.ofSeconds(1))
            .withReleaseOnCancel(true)
            .withLock(new LeaseLock("default", "check", "one"))
            .withLeaderCallbacks(new LeaderCallbacks(leads::countDown, () -> {}, leader -> {}))
            .build();
    var running = client.leaderElector().withConfig(config).build().start();
    Check.check(leads.await(30, TimeUnit.SECONDS), "nobody leads");
    var lease = client.leases().inNamespace("default").withName("check");
    var first = lease.get().getSpec().getRenewTime();
    Check.until("the lease is renewed", () -> lease.get().getSpec().getRenewTime().isAfter(first));
    running.cancel(true);
  }
}
