"""The fields of KubeRay 1.7's RayCluster and RayService; what is Kubernetes' own is in pods.py.

KubeRay drops unknown fields in silence. Here they are faults.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from foredraft.strict import StrictModel

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Percent = Annotated[int, Field(ge=0, le=100)]
Texts = dict[str, str]
# Of Kubernetes itself.
Foreign = dict[str, Any]


class KubeModel(StrictModel):
    """An object of Kubernetes, whose keys are in camel case."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True)


class AuthOptions(KubeModel):
    """Ray's token authentication."""

    mode: Literal["disabled", "token"] = "token"
    secret_name: str = ""
    enable_k8s_token_auth: bool = Field(default=False, alias="enableK8sTokenAuth")


class TlsOptions(KubeModel):
    """mTLS between the pods, by cert-manager."""

    enabled: bool = False


class NetworkRules(KubeModel):
    """Rules of a NetworkPolicy beside the operator's."""

    ingress_rules: list[Foreign] = Field(default=[])
    egress_rules: list[Foreign] = Field(default=[])


class GroupNetworkRules(NetworkRules):
    """The rules of one worker group, in place of those of all."""

    group_name: str


class NetworkPolicy(KubeModel):
    """What the operator's network policies deny."""

    mode: Literal["DenyAll", "DenyAllIngress", "DenyAllEgress"] = "DenyAll"
    head: NetworkRules = NetworkRules()
    worker: NetworkRules = NetworkRules()
    worker_groups: list[GroupNetworkRules] = Field(default=[])

    @property
    def denies_ingress(self) -> bool:
        """Whether nothing else reaches the pods."""
        return self.mode != "DenyAllEgress"

    @property
    def denies_egress(self) -> bool:
        """Whether the pods reach nothing else."""
        return self.mode != "DenyAllIngress"


class GcsStorage(KubeModel):
    """The volume of an embedded GCS store."""

    claim_name: str = ""
    size: str | int | None = None
    storage_class_name: str | None = None
    access_modes: list[str] = Field(default=[])
    sub_path: str = ""
    deletion_policy: Literal["DeleteWithCluster", "Retain"] = "DeleteWithCluster"


class GcsOptions(KubeModel):
    """How the head's state outlives its pod."""

    backend: Literal["redis", "rocksdb"] = "redis"
    redis_address: str = ""
    redis_username: Foreign | None = None
    redis_password: Foreign | None = None
    external_storage_namespace: str = ""
    storage: GcsStorage | None = None


class AutoscalerOptions(KubeModel):
    """Ray's autoscaler beside the head."""

    version: Literal["v1", "v2"] | None = None
    upscaling_mode: Literal["Default", "Aggressive", "Conservative"] | None = None
    idle_timeout_seconds: Count | None = None
    image: str | None = None
    image_pull_policy: str | None = None
    resources: Foreign = Field(default={})
    security_context: Foreign = Field(default={})
    env: list[Foreign] = Field(default=[])
    env_from: list[Foreign] = Field(default=[])
    volume_mounts: list[Foreign] = Field(default=[])
    command: list[str] = Field(default=[])
    args: list[str] = Field(default=[])


class Group(KubeModel):
    """What head and worker groups have in common."""

    template: Foreign
    ray_start_params: Texts = Field(default={})
    resources: Texts = Field(default={})
    labels: Texts = Field(default={})


class HeadGroup(Group):
    """The head."""

    head_service: Foreign | None = None
    enable_ingress: bool | None = None
    ingress_options: Foreign | None = None
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None


class WorkerGroup(Group):
    """Pods that are alike."""

    group_name: Annotated[str, Field(min_length=1)]
    replicas: Count = 0
    min_replicas: Count = 0
    max_replicas: Count = 2**31 - 1
    idle_timeout_seconds: Count | None = None
    priority: int = 0
    num_of_hosts: Annotated[int, Field(ge=1)] = 1
    scale_strategy: Foreign = Field(default={})
    suspend: bool | None = None


class RayClusterSpec(KubeModel):
    """A cluster of Ray."""

    ray_version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    head_group_spec: HeadGroup
    worker_group_specs: list[WorkerGroup] = Field(default=[])
    enable_in_tree_autoscaling: bool = False
    autoscaler_options: AutoscalerOptions = AutoscalerOptions()
    auth_options: AuthOptions | None = None
    tls_options: TlsOptions = TlsOptions()
    network_policy: NetworkPolicy | None = None
    gcs_fault_tolerance_options: GcsOptions | None = None
    history_server_options: Foreign | None = None
    head_service_annotations: Texts = Field(default={})
    upgrade_strategy: Foreign | None = None
    managed_by: str | None = None
    suspend: bool = False


class ClusterUpgrade(KubeModel):
    """How traffic moves to a new cluster, step by step."""

    max_surge_percent: Percent = 100
    step_size_percent: Percent
    interval_seconds: Annotated[int, Field(ge=1)]
    gateway_class_name: Annotated[str, Field(min_length=1)]


class UpgradeStrategy(KubeModel):
    """What a changed cluster does to the one that serves."""

    type: Literal["NewCluster", "NewClusterWithIncrementalUpgrade", "None"] = "NewCluster"
    cluster_upgrade_options: ClusterUpgrade | None = None


class RayServiceSpec(KubeModel):
    """A cluster of Ray with a Serve config file."""

    serve_config_v2: str = Field(alias="serveConfigV2")
    ray_cluster_config: RayClusterSpec
    upgrade_strategy: UpgradeStrategy = UpgradeStrategy()
    ray_cluster_deletion_delay_seconds: Count | None = None
    exclude_head_pod_from_serve_svc: bool = False
    serve_service: Foreign | None = None
    managed_by: str | None = None
    suspend: bool = False
