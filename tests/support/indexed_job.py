# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A double of what Kubernetes 1.24 and newer do with an Indexed Job, for releases that do not know such jobs.

The manual of Kubernetes (Workloads, Job, Completion mode) says what a pod of one has: its index in an annotation
and in JOB_COMPLETION_INDEX, a host name made of the job's name and the index, a name that adds a random ending to it,
and label job-name, by which a Service selects it.
"""

import copy

INDEX = "batch.kubernetes.io/job-completion-index"


def pods_of(job: dict) -> list[dict]:
    """The pods of a job, in the order of their indices. All of them run at once, and none is started again."""
    spec = job["spec"]
    wanted = {"completionMode": "Indexed", "parallelism": spec["completions"], "backoffLimit": 0}
    if any(spec[key] != value for key, value in wanted.items()):
        raise ValueError(f"this double makes pods of jobs with {wanted}")
    return [_pod(job["metadata"]["name"], index, spec["template"]) for index in range(spec["completions"])]


def index_of(pod: dict) -> int:
    return int(pod["metadata"]["annotations"][INDEX])


def _pod(job: str, index: int, template: dict) -> dict:
    pod = copy.deepcopy(template) | {"apiVersion": "v1", "kind": "Pod"}
    metadata = pod.setdefault("metadata", {})
    metadata["generateName"] = f"{job}-{index}-"
    metadata.setdefault("labels", {})["job-name"] = job
    metadata.setdefault("annotations", {})[INDEX] = str(index)
    pod["spec"]["hostname"] = f"{job}-{index}"
    for container in pod["spec"]["containers"]:
        field = {"fieldPath": f"metadata.annotations['{INDEX}']"}
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}})
    return pod
