"""The official Python client against a workspace: typed, custom and dynamic objects, patches, watches, applies.

KUBECONFIG leads to a workspace of its own, where the widgets of two versions are bound; the argument is the definition of lamps.
"""

import json
import sys
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException, ApiTypeError
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, UnprocessibleEntityError

GROUP, VERSION, PLURAL, NAMESPACE = "house.example.io", "v1", "lamps", "default"


def lamp(name, **spec):
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Lamp", "metadata": {"name": name}, "spec": spec}


def refused(code, call, *arguments, **options):
    """The refusal's Status, if it has this code."""
    try:
        call(*arguments, **options)
    except ApiException as refusal:
        assert refusal.status == code, refusal
        return json.loads(refusal.body)
    raise AssertionError(f"{call} was not refused")


def install(api, definition):
    """A typed definition, and a typed watch until it is established."""
    definitions = client.ApiextensionsV1Api(api)
    made = definitions.create_custom_resource_definition(definition)
    assert made.spec.names.plural == PLURAL
    events = watch.Watch().stream(
        definitions.list_custom_resource_definition,
        field_selector=f"metadata.name={made.metadata.name}",
        timeout_seconds=30,
    )
    for event in events:
        conditions = event["object"].status.conditions or []
        if any(c.type == "Established" and c.status == "True" for c in conditions):
            return
    raise AssertionError("never established")


def typed(api):
    core = client.CoreV1Api(api)
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="map-"), data={"a": "b"})
    made = core.create_namespaced_config_map(NAMESPACE, body)
    name = made.metadata.name
    assert name.startswith("map-") and made.metadata.creation_timestamp is not None
    assert refused(409, core.create_namespaced_config_map, NAMESPACE, made_again(made))["reason"] == "AlreadyExists"
    # The client guesses the kind of patch by its body: a list is a JSON patch, a dictionary a strategic one.
    core.patch_namespaced_config_map(name, NAMESPACE, {"data": {"c": "d"}})
    core.patch_namespaced_config_map(name, NAMESPACE, [{"op": "remove", "path": "/data/a"}])
    assert core.read_namespaced_config_map(name, NAMESPACE).data == {"c": "d"}
    made.data = {"stale": "yes"}
    assert refused(409, core.replace_namespaced_config_map, name, NAMESPACE, made)["reason"] == "Conflict"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="more")))
    assert "more" in [item.metadata.name for item in core.list_namespace().items]
    core.create_namespaced_secret("more", client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"a": "b"}))
    assert core.read_namespaced_secret("s", "more").data == {"a": "Yg=="}
    gone = core.delete_namespaced_config_map(name, NAMESPACE)
    # A model until version 36, a dictionary from version 37.
    gone = gone if isinstance(gone, dict) else gone.to_dict()
    assert gone["status"] == "Success" and gone["details"]["name"] == name
    assert refused(404, core.read_namespaced_config_map, name, NAMESPACE)["details"]["name"] == name
    assert client.VersionApi(api).get_code().minor.isdigit()


def made_again(made):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=made.metadata.name))


def custom(api):
    """CustomObjectsApi: dictionaries in, dictionaries out."""
    objects = client.CustomObjectsApi(api)
    place = (GROUP, VERSION, NAMESPACE, PLURAL)
    made = objects.create_namespaced_custom_object(*place, lamp("a", watts=5))
    assert made["spec"] == {"watts": 5, "colour": "white"} and made["metadata"]["generation"] == 1
    assert refused(422, objects.create_namespaced_custom_object, *place, lamp("b", watts=-1))["reason"] == "Invalid"
    patched = objects.patch_namespaced_custom_object(*place, "a", {"spec": {"watts": 6}})
    assert patched["metadata"]["generation"] == 2
    try:
        listed = {"_content_type": "application/json-patch+json"}
        replaced = [{"op": "replace", "path": "/spec/watts", "value": 7}]
        patched = objects.patch_namespaced_custom_object(*place, "a", replaced, **listed)
    except ApiTypeError:
        # Older versions of the client send every patch of a custom object as a merge patch.
        patched = objects.patch_namespaced_custom_object(*place, "a", {"spec": {"watts": 7}})
    assert patched["spec"]["watts"] == 7
    status = objects.patch_namespaced_custom_object_status(*place, "a", {"status": {"phase": "On"}, "spec": {"watts": 1}})
    assert status["status"] == {"phase": "On"} and status["spec"]["watts"] == 7
    assert status["metadata"]["generation"] == 3
    objects.patch_namespaced_custom_object_scale(*place, "a", {"spec": {"replicas": 4}})
    assert objects.get_namespaced_custom_object_scale(*place, "a")["spec"] == {"replicas": 4}
    stale = refused(409, objects.replace_namespaced_custom_object, *place, "a", made)
    assert stale["reason"] == "Conflict", stale
    fresh = objects.get_namespaced_custom_object(*place, "a")
    fresh["spec"]["colour"] = "red"
    objects.replace_namespaced_custom_object(*place, "a", fresh)
    tried = objects.patch_namespaced_custom_object(*place, "a", {"spec": {"colour": "blue"}}, dry_run="All")
    assert tried["spec"]["colour"] == "blue"
    red = objects.list_namespaced_custom_object(*place, field_selector="spec.colour=red")
    assert [item["metadata"]["name"] for item in red["items"]] == ["a"]
    strict = {"field_validation": "Strict"}
    told = refused(400, objects.create_namespaced_custom_object, *place, lamp("c", wats=1), **strict)
    assert 'unknown field "spec.wats"' in told["message"], told
    for index in range(7):
        objects.create_namespaced_custom_object(*place, lamp(f"page-{index}", watts=index))
    assert [len(page) for page in pages(objects, place, 3)] == [3, 3, 2]
    objects.delete_collection_namespaced_custom_object(*place, label_selector="none=such")
    assert len(objects.list_cluster_custom_object(GROUP, VERSION, PLURAL)["items"]) == 8
    objects.delete_collection_namespaced_custom_object(*place)
    assert objects.list_namespaced_custom_object(*place)["items"] == []


def pages(objects, place, limit):
    token = None
    while token != "":
        page = objects.list_namespaced_custom_object(*place, limit=limit, **({"_continue": token} if token else {}))
        token = page["metadata"].get("continue", "")
        yield page["items"]


def watched(api):
    """Every change once, in order, from the revision of a list; then a revision that is no more."""
    objects = client.CustomObjectsApi(api)
    place = (GROUP, VERSION, NAMESPACE, PLURAL)
    begin = objects.list_namespaced_custom_object(*place)["metadata"]["resourceVersion"]

    def write():
        objects.create_namespaced_custom_object(*place, lamp("w", watts=1))
        objects.patch_namespaced_custom_object(*place, "w", {"spec": {"watts": 2}})
        objects.delete_namespaced_custom_object(*place, "w")

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    stream = watch.Watch()
    options = {"resource_version": begin, "timeout_seconds": 30}
    for event in stream.stream(objects.list_namespaced_custom_object, *place, **options):
        seen.append((event["type"], event["object"]["spec"]["watts"]))
        if event["type"] == "DELETED":
            stream.stop()
    writer.join()
    assert seen == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)], seen
    ends = list(watch.Watch().stream(objects.list_namespaced_custom_object, *place, timeout_seconds=1))
    assert ends == [], ends


def dynamically(api):
    """The dynamic client: discovery, apply and its conflicts, subresources, watches, deletion."""
    anything = dynamic.DynamicClient(api)
    lamps = anything.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Lamp")
    assert lamps.namespaced and "status" in lamps.subresources and "lp" in lamps.short_names
    config_maps = anything.resources.get(api_version="v1", kind="ConfigMap")
    assert config_maps.name == "configmaps"

    def apply(manager, body, **options):
        return lamps.server_side_apply(body=body, namespace=NAMESPACE, field_manager=manager, **options)

    first = apply("one", lamp("s", watts=5, rooms=[{"name": "hall", "floor": 0}]))
    assert first.spec.colour == "white" and first.metadata.managedFields[0].manager == "one"
    second = apply("two", lamp("s", rooms=[{"name": "attic", "floor": 3}]))
    assert sorted(room.name for room in second.spec.rooms) == ["attic", "hall"]
    try:
        apply("two", lamp("s", watts=9))
        raise AssertionError("no conflict")
    except ConflictError as conflict:
        causes = json.loads(conflict.body)["details"]["causes"]
        assert [(c["reason"], c["field"]) for c in causes] == [("FieldManagerConflict", ".spec.watts")], causes
    forced = apply("two", lamp("s", watts=9), force_conflicts=True)
    # What its former owner set and no longer applies is gone: the attic.
    assert forced.spec.watts == 9 and [room.name for room in forced.spec.rooms] == ["hall"]
    again = apply("two", lamp("s", watts=9), force_conflicts=True)
    assert again.metadata.resourceVersion == forced.metadata.resourceVersion
    done = lamps.status.patch(
        body={"status": {"phase": "On"}}, name="s", namespace=NAMESPACE, content_type="application/merge-patch+json"
    )
    assert done.status.phase == "On"
    try:
        lamps.patch(body=lamp("s", watts=-4), namespace=NAMESPACE, content_type="application/merge-patch+json")
        raise AssertionError("not refused")
    except UnprocessibleEntityError as invalid:
        assert json.loads(invalid.body)["details"]["causes"][0]["field"] == "spec.watts"
    for event in lamps.watch(namespace=NAMESPACE, name="s", timeout=10):
        assert event["object"].spec.watts == 9
        break
    lamps.delete(name="s", namespace=NAMESPACE, body={"propagationPolicy": "Foreground"})
    deadline = time.monotonic() + 30
    while present(lamps, "s"):
        assert time.monotonic() < deadline, "still there"
        time.sleep(0.05)


def present(resource, name):
    try:
        return resource.get(name=name, namespace=NAMESPACE) is not None
    except NotFoundError:
        return False


def versions(api):
    """A bound API in two versions: what one writes, the other reads."""
    objects = client.CustomObjectsApi(api)
    widget = {"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"firstName": "Bob"}}
    objects.create_namespaced_custom_object("example.io", "v1", NAMESPACE, "widgets", widget)
    other = ("example.io", "v2", NAMESPACE, "widgets", "a")
    assert objects.get_namespaced_custom_object(*other)["spec"] == {"name": {"first": "Bob"}}
    objects.patch_namespaced_custom_object(*other, {"spec": {"more": "kept"}})
    objects.patch_namespaced_custom_object("example.io", "v1", NAMESPACE, "widgets", "a", {"spec": {"firstName": "Eve"}})
    assert objects.get_namespaced_custom_object(*other)["spec"] == {"name": {"first": "Eve"}, "more": "kept"}


def main():
    api = config.new_client_from_config()
    with open(sys.argv[1], encoding="utf-8") as file:
        install(api, json.load(file))
    for step in (typed, custom, watched, dynamically, versions):
        step(api)
        print(step.__name__, "passed", flush=True)


main()
