"""The Kubernetes API of a pod's service account, or of a kubeconfig."""

import os
from typing import Any

from voxline.errors import TransientError, WorkError


def core_api() -> Any:
    """`CoreV1Api`.

    Raises:
      WorkError: there is neither a service account nor a kubeconfig.
    """
    from kubernetes.client import CoreV1Api

    return CoreV1Api(_api_client())


def apps_api() -> Any:
    """`AppsV1Api`; raises as `core_api` does."""
    from kubernetes.client import AppsV1Api

    return AppsV1Api(_api_client())


def is_allowed(verb: str, resource: str, namespace: str, group: str = "") -> bool:
    """Asks Kubernetes if this account may do something (a SelfSubjectAccessReview)."""
    from kubernetes import client

    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(
                verb=verb, resource=resource, group=group, namespace=namespace
            )
        )
    )
    answer = client.AuthorizationV1Api(_api_client()).create_self_subject_access_review(review, _request_timeout=15)
    return bool(answer.status.allowed)


def request_token(account: str, namespace: str, audience: str, seconds: int) -> tuple[str, float]:
    """A new token of a service account (a TokenRequest), and when it expires, in seconds since the epoch.

    Raises:
      WorkError: the account does not exist, or this kubeconfig's account may not make a token of it.
      TransientError: Kubernetes does not respond.
    """
    import urllib3
    from kubernetes import client

    request = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=[audience], expiration_seconds=seconds)
    )
    try:
        answer = core_api().create_namespaced_service_account_token(account, namespace, request, _request_timeout=15)
    except client.ApiException as error:
        fixes = {
            401: "its credentials have expired or are wrong",
            403: f"grant `create` on serviceaccounts/token of {account} in {namespace} (docs/cluster/ci.md)",
            404: f"namespace {namespace} or its service account {account} does not exist; apply an overlay of k8s/",
        }
        fix = fixes.get(error.status, "the Kubernetes API refused it")
        raise WorkError(f"no token of service account {account}: {error.status} {error.reason}: {fix}") from None
    except urllib3.exceptions.HTTPError as error:
        raise TransientError(f"no token of service account {account}: the Kubernetes API: {error}") from None
    return str(answer.status.token), answer.status.expiration_timestamp.timestamp()


def _api_client() -> Any:
    from kubernetes import client, config

    # A configuration of its own: the global one is shared with everything else in this process.
    configuration = client.Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(client_configuration=configuration)
    except config.ConfigException:
        raise WorkError("there is no kubeconfig; `kubectl config current-context` must name a cluster") from None

    configuration.retries = 1  # urllib3's three make a person wait for a minute if the cluster is off
    return client.ApiClient(configuration)
