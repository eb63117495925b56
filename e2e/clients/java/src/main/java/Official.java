import com.google.gson.JsonParser;
import com.google.gson.reflect.TypeToken;
import io.kubernetes.client.custom.V1Patch;
import io.kubernetes.client.extended.leaderelection.LeaderElectionConfig;
import io.kubernetes.client.extended.leaderelection.LeaderElector;
import io.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.apis.VersionApi;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.openapi.models.V1Secret;
import io.kubernetes.client.util.Config;
import io.kubernetes.client.util.Watch;
import io.kubernetes.client.util.generic.GenericKubernetesApi;
import io.kubernetes.client.util.generic.dynamic.DynamicKubernetesApi;
import io.kubernetes.client.util.generic.dynamic.DynamicKubernetesObject;
import io.kubernetes.client.util.generic.options.PatchOptions;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** The official Java client. */
final class Official {
  private final ApiClient client;
  private final CoreV1Api core;
  private final GenericKubernetesApi<V1ConfigMap, V1ConfigMapList> maps;

  Official() throws Exception {
    client = Config.defaultClient();
    // Watches end by the server's time alone.
    client.setHttpClient(client.getHttpClient().newBuilder().readTimeout(Duration.ZERO).build());
    core = new CoreV1Api(client);
    maps = new GenericKubernetesApi<>(V1ConfigMap.class, V1ConfigMapList.class, "", "v1", "configmaps", client);
  }

  void run() throws Exception {
    Check.step("discovery", this::discovers);
    Check.step("typed", this::typed);
    Check.step("apply", this::applies);
    Check.step("dynamic", this::dynamic);
    Check.step("watch", this::watches);
    Check.step("informer", this::informs);
    Check.step("election", this::elects);
  }

  private static V1ConfigMap map(String name, Map<String, String> data) {
    return new V1ConfigMap().metadata(new V1ObjectMeta().name(name).namespace("default")).data(data);
  }

  private void discovers() throws Exception {
    Check.check(new VersionApi(client).getCode().execute().getMajor().equals("1"), "version");
    var found = new io.kubernetes.client.Discovery(client).findAll();
    Check.check(found.stream().anyMatch(kind -> kind.getKind().equals("Widget")), found);
  }

  private void typed() throws Exception {
    core.createNamespacedConfigMap("default", map("typed", Map.of("a", "b"))).execute();
    var read = core.readNamespacedConfigMap("typed", "default").execute();
    core.replaceNamespacedConfigMap("typed", "default", read.data(Map.of("a", "c"))).execute();
    try {
      core.replaceNamespacedConfigMap("typed", "default", read.data(Map.of("a", "d"))).execute();
      throw new AssertionError("no conflict");
    } catch (ApiException refusal) {
      Check.check(refusal.getCode() == 409, refusal.getResponseBody());
    }
    var secret = new V1Secret().metadata(new V1ObjectMeta().name("typed")).stringData(Map.of("a", "b"));
    core.createNamespacedSecret("default", secret).execute();
    var data = core.readNamespacedSecret("typed", "default").execute().getData();
    Check.check(new String(data.get("a")).equals("b"), data);
    core.deleteNamespacedConfigMap("typed", "default").execute();
    core.listNamespace().execute();
  }

  private void applies() {
    Check.check(maps.create(map("applied", Map.of("a", "b"))).isSuccess(), "create");
    var patch = new V1Patch("{\"data\":{\"c\":\"d\"}}");
    Check.check(
        maps.patch("default", "applied", V1Patch.PATCH_FORMAT_STRATEGIC_MERGE_PATCH, patch).isSuccess(), "patch");
    var options = new PatchOptions();
    options.setFieldManager("check");
    options.setForce(true);
    var applied =
        new V1Patch(
            "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"applied\"},\"data\":{\"a\":\"z\"}}");
    var answer = maps.patch("default", "applied", V1Patch.PATCH_FORMAT_APPLY_YAML, applied, options);
    Check.check(answer.isSuccess() && answer.getObject().getData().equals(Map.of("a", "z", "c", "d")), answer.getStatus());
    Check.check(maps.delete("default", "applied").isSuccess(), "delete");
    Check.check(maps.get("default", "applied").getHttpStatusCode() == 404, "it is still there");
  }

  private void dynamic() {
    var widgets = new DynamicKubernetesApi("example.io", "v1", "widgets", client);
    var ada =
        JsonParser.parseString(
            "{\"apiVersion\":\"example.io/v1\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"ada\",\"namespace\":\"default\"},"
                + "\"spec\":{\"firstName\":\"Ada\"}}");
    var made = widgets.create(new DynamicKubernetesObject(ada.getAsJsonObject()));
    Check.check(made.isSuccess(), made.getStatus());
    Check.check(widgets.list("default").getObject().getItems().size() == 1, "one widget");
    Check.check(widgets.delete("default", "ada").isSuccess(), "delete");
  }

  private void watches() throws Exception {
    core.createNamespacedConfigMap("default", map("watched", Map.of())).execute();
    var call = core.listNamespacedConfigMap("default").watch(true).timeoutSeconds(20).buildCall(null);
    var type = new TypeToken<Watch.Response<V1ConfigMap>>() {}.getType();
    try (Watch<V1ConfigMap> watch = Watch.createWatch(client, call, type)) {
      Check.check(watch.iterator().next().type.equals("ADDED"), "the first event");
    }
  }

  private void informs() throws Exception {
    List<String> seen = new CopyOnWriteArrayList<>();
    var factory = new SharedInformerFactory(client);
    var informer = factory.sharedIndexInformerFor(maps, V1ConfigMap.class, 0);
    informer.addEventHandler(
        new ResourceEventHandler<V1ConfigMap>() {
          @Override
          public void onAdd(V1ConfigMap map) {
            seen.add("add " + map.getMetadata().getName());
          }

          @Override
          public void onUpdate(V1ConfigMap before, V1ConfigMap map) {
            seen.add("update " + map.getMetadata().getName());
          }

          @Override
          public void onDelete(V1ConfigMap map, boolean unknown) {
            seen.add("delete " + map.getMetadata().getName());
          }
        });
    factory.startAllRegisteredInformers();
    Check.until("the informer is in step", informer::hasSynced);
    core.createNamespacedConfigMap("default", map("informed", Map.of("a", "b"))).execute();
    Check.until("it was added", () -> seen.contains("add informed"));
    core.replaceNamespacedConfigMap("informed", "default", map("informed", Map.of("a", "c"))).execute();
    Check.until("it was updated", () -> seen.contains("update informed"));
    core.deleteNamespacedConfigMap("informed", "default").execute();
    Check.until("it was deleted", () -> seen.contains("delete informed"));
    factory.stopAllRegisteredInformers();
  }

  private void elects() throws Exception {
    var leads = new CountDownLatch(1);
    var lock = new LeaseLock("default", "official", "one", client);
    var config = new LeaderElectionConfig(lock, Duration.ofSeconds(10), Duration.ofSeconds(8), Duration.ofSeconds(1));
    try (var elector = new LeaderElector(config)) {
      var thread = new Thread(() -> elector.run(leads::countDown, () -> {}));
      thread.setDaemon(true);
      thread.start();
      Check.check(leads.await(30, TimeUnit.SECONDS), "nobody leads");
    }
  }
}
