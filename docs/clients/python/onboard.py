"""Onboards a tenant: creates a workspace for a provider and one for the tenant, publishes an API in
the first, binds it in the second, and watches the rollout until the tenant serves it.

    python -m grpc_tools.protoc -I proto --python_out . --grpc_python_out . proto/insula/admin/v1/*.proto
    PYTHONPATH=. python docs/clients/python/onboard.py 127.0.0.1:6443 .insula/pki lamps.json acme
"""

import json
import pathlib
import sys
import time
import uuid

import grpc
from google.protobuf import json_format, struct_pb2

from insula.admin.v1 import api_pb2, api_pb2_grpc, workspace_pb2, workspace_pb2_grpc

SECONDS = 60  # for each call, and for the rollout


def connect(address, pki):
    """Opens a channel as the administrator whose certificate the server made."""
    ca, certificate, key = ((pki / name).read_bytes() for name in ("ca.crt", "kcp-admin.crt", "kcp-admin.key"))
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate))


def onboard(channel, definition, tenant):
    workspaces = workspace_pb2_grpc.WorkspaceServiceStub(channel)
    apis = api_pb2_grpc.ApiServiceStub(channel)

    def create(name):
        # A repetition with the same request_id gets the first answer.
        request = workspace_pb2.CreateWorkspaceRequest(name=name, wait=True, request_id=str(uuid.uuid4()))
        return workspaces.CreateWorkspace(request, timeout=SECONDS).workspace.path

    provider, path = create(tenant + "-provider"), create(tenant)
    manifest = json_format.ParseDict(definition, struct_pb2.Struct())
    publish = api_pb2.PublishApiRequest(workspace=provider, manifests=[manifest])
    published = apis.PublishApi(publish, timeout=SECONDS).export
    export, release = published.name, published.rollout.release
    bind = api_pb2.BindApiRequest(workspace=path, export_workspace=provider, export=export)
    apis.BindApi(bind, timeout=SECONDS)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        request = api_pb2.GetExportRequest(workspace=provider, export=export)
        rollout = apis.GetExport(request, timeout=SECONDS).export.rollout
        if rollout.release != release:
            raise RuntimeError(f"release {rollout.release} has taken the place of {release}")
        if rollout.reason not in ("Complete", "Progressing"):
            raise RuntimeError(f"release {release}: {rollout.reason}: {rollout.message}")
        # A rollout does not wait for a binding that was never served. This example does.
        if rollout.reason == "Complete" and rollout.unbound == 0:
            return f"{path} serves {export} of {provider}"
        time.sleep(0.1)
    raise TimeoutError(f"release {release} of {export} is not rolled out: {rollout}")


if __name__ == "__main__":
    address, pki, definition, tenant = sys.argv[1:]
    text = pathlib.Path(definition).read_text()
    print(onboard(connect(address, pathlib.Path(pki)), json.loads(text), tenant))
