"""JSON Schemas of the Kubernetes objects in examples/kubernetes: the fields that are used there, and no others."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 1}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
# A label of DNS (RFC 1123); names of ports are shorter.
NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
PORT_NAME: Schema = {"type": "string", "pattern": "^(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$"}
QUANTITY: Schema = {"anyOf": [COUNT, {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|[KMGT]i?)?$"}]}
QUANTITIES: Schema = {"type": "object", "additionalProperties": QUANTITY}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
PATH: Schema = {"type": "string", "pattern": "^/"}


def listed(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def made(required: str, **properties: Schema) -> Schema:
    """An object with these fields; those of `required` are always there."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def kind(name: str, version: str, spec: Schema) -> Schema:
    return made(
        "apiVersion kind metadata spec",
        apiVersion={"const": version},
        kind={"const": name},
        metadata=made("name", name=NAME, labels=LABELS),
        spec=spec,
    )


FIELD = made("fieldRef", fieldRef=made("fieldPath", fieldPath=TEXT))
VARIABLE = {"anyOf": [made("name value", name=TEXT, value=TEXT), made("name valueFrom", name=TEXT, valueFrom=FIELD)]}
CONTAINER = made(
    "name image command",
    name=NAME,
    image=TEXT,
    command=listed(TEXT),
    args=listed(TEXT),
    env=listed(VARIABLE),
    ports=listed(made("containerPort", name=PORT_NAME, containerPort=PORT)),
    readinessProbe=made(
        "httpGet", httpGet=made("path port", path=PATH, port={"anyOf": [PORT, PORT_NAME]}), periodSeconds=COUNT
    ),
    resources=made("", requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts=listed(made("name mountPath", name=NAME, mountPath=PATH, readOnly={"type": "boolean"})),
)
# A volume has a name, and is one thing.
VOLUME: Schema = {
    **made(
        "name",
        name=NAME,
        persistentVolumeClaim=made("claimName", claimName=NAME, readOnly={"type": "boolean"}),
        secret=made("secretName", secretName=NAME, defaultMode={"type": "integer", "minimum": 0, "maximum": 0o777}),
        emptyDir=made("", medium={"enum": ["", "Memory"]}, sizeLimit=QUANTITY),
    ),
    "minProperties": 2,
    "maxProperties": 2,
}


def pod(*restarts: str) -> Schema:
    """The schema of a pod template; a Job's must name a restart policy, a Deployment's need not."""
    spec = made(
        "containers restartPolicy" if restarts else "containers",
        containers=listed(CONTAINER),
        volumes=listed(VOLUME),
        **({"restartPolicy": {"enum": list(restarts)}} if restarts else {}),
    )
    return made("spec", metadata=made("labels", labels=LABELS), spec=spec)


OBJECTS: Schema = {
    "PersistentVolumeClaim": kind(
        "PersistentVolumeClaim",
        "v1",
        made(
            "accessModes resources",
            accessModes=listed({"enum": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]}),
            resources=made("requests", requests=made("storage", storage=QUANTITY)),
        ),
    ),
    "Job": kind(
        "Job",
        "batch/v1",
        made("template", backoffLimit={"type": "integer", "minimum": 0}, template=pod("Never", "OnFailure")),
    ),
    "Deployment": kind(
        "Deployment",
        "apps/v1",
        made(
            "selector template",
            replicas=COUNT,
            selector=made("matchLabels", matchLabels=LABELS),
            template={**pod(), "required": ["metadata", "spec"]},
        ),
    ),
    "Service": kind(
        "Service",
        "v1",
        made(
            "selector ports",
            selector=LABELS,
            ports=listed(made("port", name=PORT_NAME, port=PORT, targetPort={"anyOf": [PORT, PORT_NAME]})),
        ),
    ),
    "Kustomization": made(
        "apiVersion kind resources",
        apiVersion={"const": "kustomize.config.k8s.io/v1beta1"},
        kind={"const": "Kustomization"},
        namespace=NAME,
        resources=listed(TEXT),
        secretGenerator=listed(made("name files", name=NAME, files=listed(TEXT))),
    ),
}
