"""Who reaches whom by the NetworkPolicies of built manifests, as a plug-in that enforces them decides."""

import ipaddress
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.k8s.built import Object


@dataclass(frozen=True)
class End:
    """A pod, or an address outside of the cluster's pods."""

    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    address: str = ""
    namespace_labels: dict[str, str] = field(default_factory=dict)

    @property
    def all_namespace_labels(self) -> dict[str, str]:
        return {"kubernetes.io/metadata.name": self.namespace, **self.namespace_labels}


def allowed(objects: list[Object], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """Whether the policies on both ends let a connection pass."""
    policies = [one for one in objects if one["kind"] == "NetworkPolicy"]
    egress = source.address or _passes(policies, source, target, "Egress", port, protocol)
    ingress = target.address or _passes(policies, target, source, "Ingress", port, protocol)
    return bool(egress and ingress)


def selecting(objects: list[Object], pod: End) -> list[str]:
    """Names of the policies that concern a pod."""
    return [one["metadata"]["name"] for one in objects if one["kind"] == "NetworkPolicy" and _concerns(one, pod, "")]


def _passes(policies: list[Object], here: End, there: End, direction: str, port: int, protocol: str) -> bool:
    mine = [one["spec"] for one in policies if _concerns(one, here, direction)]
    key, ends = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    return not mine or any(
        _has_port(rule, port, protocol) and any(_is_end(end, here, there) for end in rule.get(ends) or [{}])
        for spec in mine
        for rule in spec.get(key) or []
    )


def _concerns(policy: Object, pod: End, direction: str) -> bool:
    here = policy["metadata"].get("namespace", "") == pod.namespace and not pod.address
    kinds = policy["spec"].get("policyTypes", ["Ingress"])
    return here and (not direction or direction in kinds) and _matches(policy["spec"]["podSelector"], pod.labels)


def _has_port(rule: Object, port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    return not ports or any((one.get("protocol", "TCP"), one.get("port")) == (protocol, port) for one in ports)


def _is_end(end: Object, here: End, there: End) -> bool:
    if not end:
        return True
    if "ipBlock" in end:
        block = end["ipBlock"]
        return (
            bool(there.address)
            and _within(there.address, block["cidr"])
            and not any(_within(there.address, cidr) for cidr in block.get("except", []))
        )
    if there.address:
        return False
    selector = end.get("namespaceSelector")
    same = there.namespace == here.namespace if selector is None else _matches(selector, there.all_namespace_labels)
    return same and _matches(end.get("podSelector") or {}, there.labels)


def _within(address: str, cidr: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(cidr)


def _matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """A label selector on labels; an empty one matches everything."""
    tests = {
        "In": lambda value, values: value in values,
        "NotIn": lambda value, values: value not in values,
        "Exists": lambda value, _: value is not None,
        "DoesNotExist": lambda value, _: value is None,
    }
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        tests[one["operator"]](labels.get(one["key"]), one.get("values") or [])
        for one in selector.get("matchExpressions") or []
    )
