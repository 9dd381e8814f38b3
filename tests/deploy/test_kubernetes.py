"""The Helm chart, the manifests that are rendered from it, and the Compose files.

The quick tests need no Helm: they read the rendered manifests. These contain a digest of the files from which they were
rendered. The deep tests render the chart in all its forms.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploy import manifests
from deploy.manifests import CHART, COPIES, MANIFESTS, RENDERED
from dispatcher.model.errors import BinlogError
from dispatcher.settings.load import load_settings
from dispatcher.yaml_settings.section import parse_listen
from spark_sink.mirror.values.settings import load_mirror_settings
from tests.daemon.harness import Daemon, Reader, until
from tests.servers import Server
from tests.support.prometheus import promtool

DEPLOY = RENDERED.parent
ROOT = DEPLOY.parent
SECRETS = {
    "REPL_PASSWORD": "secret",
    "API_TOKEN": "0123456789abcdef",
    "SCRAPE_TOKEN": "fedcba9876543210",
    "COPY_PASSWORD": "secret",
    "STATE_PASSWORD": "secret",
}
# A deep test checks objects of these API groups with the schemas in the operators' Go modules.
OF_OPERATORS = ("monitoring.coreos.com/v1", "sparkoperator.k8s.io/v1beta2")
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
SPARK_OPERATOR = "github.com/kubeflow/spark-operator/v2@v2.4.0"
KUBERNETES = ("1.27", manifests.KUBE_VERSION, "1.37")

Object = dict[str, Any]


def objects(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one]


def read(name: str) -> list[Object]:
    return objects((RENDERED / name).read_text(encoding="utf-8"))


def one(found: list[Object], kind: str) -> Object:
    (only,) = (each for each in found if each["kind"] == kind)
    return only


def named(found: list[Object], kind: str, name: str) -> Object:
    return one([each for each in found if each["metadata"]["name"] == name], kind)


@pytest.fixture(scope="module")
def daemon() -> list[Object]:
    return read("binlog-dispatcher.yaml")


@pytest.fixture(scope="module")
def two_daemons() -> list[Object]:
    return read("two-daemons.yaml")


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_are_rendered_from_the_chart(name: str) -> None:
    """If this test fails after a change of the chart, the alerts or the dashboard, run `make manifests`."""
    first = (RENDERED / name).read_text(encoding="utf-8").splitlines()[0]
    assert first.endswith(manifests.digest())


@pytest.mark.parametrize("copy", COPIES.values(), ids=lambda path: path.name)
def test_the_chart_has_the_alerts_and_the_dashboard(copy: Path) -> None:
    (source,) = (source for source, of in COPIES.items() if of == copy)
    assert copy.read_bytes() == source.read_bytes()


def validate(found: list[Object], versions: tuple[str, ...] = KUBERNETES) -> None:
    for version in versions:
        for each in found:
            if each["apiVersion"] not in OF_OPERATORS:
                kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_are_valid(name: str) -> None:
    validate(read(name))


def test_the_objects_agree_with_each_other(daemon: list[Object]) -> None:
    workload, service = one(daemon, "StatefulSet"), one(daemon, "Service")
    template = workload["spec"]["template"]
    (container,) = template["spec"]["containers"]
    labels = template["metadata"]["labels"].items()
    assert workload["spec"]["replicas"] == 1
    assert service["metadata"]["name"] == workload["spec"]["serviceName"]
    for selector in (
        service["spec"]["selector"],
        workload["spec"]["selector"]["matchLabels"],
        one(daemon, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(daemon, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    claims = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == claims | volumes.keys()
    assert volumes["settings"]["configMap"]["name"] == one(daemon, "ConfigMap")["metadata"]["name"]
    probes = {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("liveness", "readiness")}
    assert probes == {"/livez", "/readyz"}


def test_nothing_runs_as_root_or_writes_to_the_root(daemon: list[Object]) -> None:
    jobs = (one(read(f"mirror-job{more}.yaml"), "Job") for more in ("", "-with-executors"))
    for workload in (one(daemon, "StatefulSet"), *jobs):
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["allowPrivilegeEscalation"] is False


def test_the_network_policy_lets_in_readers_and_monitoring_only(daemon: list[Object]) -> None:
    spec = one(daemon, "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = spec["ingress"]
    selectors = [source.get("podSelector", source["namespaceSelector"]) for source in rule["from"]]
    assert all(selector["matchLabels"] for selector in selectors)
    mysql, names = spec["egress"]
    assert mysql["ports"] == [{"protocol": "TCP", "port": 3306}]
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {
        ("UDP", 53),
        ("TCP", 53),
    }


def settings_of(text: str, folder: Path, **more: str) -> Any:
    file = folder / "dispatcher.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings([file], environment=SECRETS | more)


def test_the_settings_are_valid(daemon: list[Object], tmp_path: Path) -> None:
    settings = settings_of(one(daemon, "ConfigMap")["data"]["dispatcher.yaml"], tmp_path)
    assert list(settings.consumers) == ["shop"]
    assert [token.scopes for token in settings.api.tokens] == [
        ("read", "acknowledge"),
        ("metrics",),
    ]


# -- several daemons -----------------------------------------------------------------------------------------


def test_each_of_two_daemons_advertises_a_name_that_leads_to_its_pod(
    two_daemons: list[Object], tmp_path: Path
) -> None:
    workload = one(two_daemons, "StatefulSet")
    name, replicas = workload["metadata"]["name"], workload["spec"]["replicas"]
    pods = named(two_daemons, "Service", workload["spec"]["serviceName"])
    assert pods["spec"]["clusterIP"] == "None" and pods["spec"]["publishNotReadyAddresses"]
    template = workload["spec"]["template"]
    assert pods["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    (port,) = pods["spec"]["ports"]
    text = one(two_daemons, "ConfigMap")["data"]["dispatcher.yaml"]
    settings = [
        settings_of(text, tmp_path, **{variable["name"]: f"{name}-{n}"}) for n in range(replicas)
    ]
    where = f"{pods['metadata']['name']}.{pods['metadata']['namespace']}"
    assert [each.api.address for each in settings] == [
        f"http://{name}-{n}.{where}:{port['port']}" for n in range(replicas)
    ]
    assert {each.state.label for each in settings} == {"dispatcher@state:3306/binlog_dispatcher"}


def test_two_daemons_share_no_volume_and_no_node(two_daemons: list[Object]) -> None:
    spec = one(two_daemons, "StatefulSet")["spec"]
    assert "volumeClaimTemplates" not in spec
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = spec["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()


def test_nothing_waits_for_a_standby_to_become_ready(two_daemons: list[Object]) -> None:
    """The pod of a standby is not ready, so no update, start or eviction may wait until it becomes ready."""
    spec = one(two_daemons, "StatefulSet")["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    (container,) = spec["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    budget = one(two_daemons, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == spec["replicas"]


def test_prometheus_finds_each_daemon_once(two_daemons: list[Object]) -> None:
    """By these labels, a ServiceMonitor selects the daemons' Service, but not the Service for the pods' names."""
    service, pods = (
        named(two_daemons, "Service", f"binlog-dispatcher{more}")["metadata"]["labels"]
        for more in ("", "-pods")
    )
    assert service["app.kubernetes.io/component"] == "daemon"
    assert pods["app.kubernetes.io/component"] != "daemon"


MIRRORS = [name for name in MANIFESTS if name.startswith("mirror-")]


@pytest.mark.parametrize("name", MIRRORS)
def test_the_settings_of_the_mirror_are_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_text(one(read(name), "ConfigMap")["data"]["mirror.yaml"], encoding="utf-8")
    settings = load_mirror_settings([file], environment=SECRETS)
    assert list(settings.consumers) == ["shop", "billing"]


def test_a_driver_may_start_the_executors_that_its_settings_describe() -> None:
    found = read("mirror-job-with-executors.yaml")
    data = one(found, "ConfigMap")["data"]
    pod = yaml.safe_load(data["executor.yaml"])
    validate([pod | {"metadata": pod["metadata"] | {"name": "executor"}}])
    spec = one(found, "Job")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    given = dict(
        text.removeprefix("--conf=").split("=", 1)
        for text in container["args"]
        if text.startswith("--conf=")
    )
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "settings")
    assert (
        given["spark.kubernetes.executor.podTemplateFile"] == f"{mount['mountPath']}/executor.yaml"
    )
    assert given["spark.kubernetes.executor.podTemplateContainerName"] == "executor"
    assert given["spark.kubernetes.container.image"] == container["image"]
    used = {name for value in given.values() for name in re.findall(r"\$\((\w+)\)", value)}
    assert used == {variable["name"] for variable in container["env"]}
    ports = {str(port["containerPort"]) for port in container["ports"]}
    assert {given["spark.driver.port"], given["spark.driver.blockManager.port"]} <= ports
    account = one(found, "ServiceAccount")["metadata"]["name"]
    (subject,) = one(found, "RoleBinding")["subjects"]
    assert spec["serviceAccountName"] == subject["name"] == account
    assert one(found, "RoleBinding")["roleRef"]["name"] == one(found, "Role")["metadata"]["name"]


def test_the_values_are_described_by_their_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_bytes())
    assert values.keys() | {"global"} == schema["properties"].keys()
    for name, section in values.items():
        described = schema["properties"][name]
        if isinstance(section, dict) and described.get("additionalProperties") is False:
            assert section.keys() <= described["properties"].keys(), name


# -- Compose -------------------------------------------------------------------------------------------------


COMPOSE, COMPOSE_TWO = "compose.yaml", "compose-two-daemons.yaml"
QUICKSTART = "compose.quickstart.yaml"


def compose(file: str) -> Object:
    document = yaml.safe_load((DEPLOY / file).read_bytes())
    assert isinstance(document, dict)
    return document


def config(name: str, file: str = COMPOSE) -> str:
    """Returns the content of a config file that the Compose file declares. Compose writes a dollar sign as $$."""
    return str(compose(file)["configs"][name]["content"]).replace("$$", "$")


def test_the_settings_in_the_compose_file_are_valid(tmp_path: Path) -> None:
    assert list(settings_of(config("dispatcher"), tmp_path).consumers) == ["shop"]
    file = tmp_path / "mirror.yaml"
    file.write_text(config("mirror"), encoding="utf-8")
    assert list(load_mirror_settings([file], environment=SECRETS).consumers) == ["shop"]
    for name in ("alerts.yaml", "scrape-token", "prometheus.yaml"):
        text = config("prometheus") if name == "prometheus.yaml" else "groups: []\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
    promtool("check", "config", str(tmp_path / "prometheus.yaml"))


def test_the_settings_of_the_quickstart_fit_together(tmp_path: Path) -> None:
    settings = settings_of(config("dispatcher", QUICKSTART), tmp_path)
    file = tmp_path / "mirror.yaml"
    file.write_text(config("mirror", QUICKSTART), encoding="utf-8")
    mirror = load_mirror_settings([file], environment=SECRETS)
    assert mirror.consumers.keys() < settings.consumers.keys() == {"changes", "mirror"}
    services = compose(QUICKSTART)["services"]
    assert f"127.0.0.1:{parse_listen(mirror.metrics).port}" in services["mirror"]["ports"][0]
    for name in ("dispatcher", "mirror"):
        mounted = {used["target"] for used in services[name]["configs"]}
        assert (
            f"/etc/binlog-{name}/{name}.yaml" in mounted and f"/etc/binlog-{name}/token" in mounted
        )
    (token,) = settings.api.tokens
    assert token.token.get_secret_value() == config("token", QUICKSTART)


@pytest.mark.deep
def test_the_rows_of_the_quickstart_change_by_themselves(mysql97: Server, tmp_path: Path) -> None:
    mysql97.execute(*re.findall(r"[^;]+(?=;)", config("sample", QUICKSTART)))
    settings = yaml.safe_load(
        config("dispatcher", QUICKSTART).replace("${REPL_PASSWORD}", "example-repl")
    )
    for consumer in settings["consumers"].values():
        consumer["mysql"] = f"repl@{mysql97.host}:{mysql97.port}"
    daemon = Daemon(tmp_path, {"consumers": settings["consumers"]})
    try:
        daemon.start()
        reader = Reader(daemon, "changes").open()

        def counts() -> list[int]:
            reader.step(wait_ms=1000)
            kinds = "SUM(status = 'new'), SUM(status = 'paid'), SUM(status = 'sent')"
            return [
                int(count or 0) for count in mysql97.execute(f"SELECT {kinds} FROM shop.orders")[0]
            ]

        until(lambda: all(counts()), "there are rows in all states")
        assert any(reader.chunks)
    finally:
        daemon.close()
        mysql97.execute("DROP DATABASE shop", "DROP USER 'repl'@'%'")


def test_the_two_daemons_of_compose_advertise_the_ports_that_are_published(tmp_path: Path) -> None:
    services = compose(COMPOSE_TWO)["services"]
    text = config("dispatcher", COMPOSE_TWO)
    for name in ("dispatcher-a", "dispatcher-b"):
        settings = settings_of(text, tmp_path, **services[name]["environment"])
        (published,) = services[name]["ports"]
        assert settings.api.address == f"http://{published.rpartition(':')[0]}"
        assert settings.state.mysql.address.host in services


@pytest.mark.parametrize("file", [COMPOSE, COMPOSE_TWO, QUICKSTART])
def test_the_compose_file_publishes_on_the_loopback_and_mounts_what_exists(file: str) -> None:
    document = compose(file)
    for name, service in document["services"].items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            exists = (
                (DEPLOY / source).exists() if source[0] == "." else source in document["volumes"]
            )
            assert exists, volume
        for used in service.get("configs", []):
            assert used["source"] in document["configs"]


# -- with Helm and Go ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def helm() -> None:
    """Builds Helm and the checker of the Compose specification. The first build takes minutes."""
    subprocess.run(["deploy/setup.sh", "helm", "compose"], cwd=ROOT, check=True, timeout=1700)


def refused(*arguments: str) -> str:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        manifests.template(*arguments)
    return str(failed.value.stderr)


deep = [pytest.mark.deep, pytest.mark.usefixtures("helm"), pytest.mark.timeout(1800)]


class TestRendering:
    pytestmark = deep

    EXAMPLE, EVERYTHING, TWO_DAEMONS = (
        str(DEPLOY / f"helm/example-{name}values.yaml") for name in ("", "mirror-", "two-daemons-")
    )

    def everything(self, *more: str) -> list[Object]:
        return objects(manifests.template("-f", self.EVERYTHING, *more))

    @pytest.mark.parametrize("name", MANIFESTS)
    def test_the_manifests_are_what_helm_renders(self, name: str) -> None:
        text = (RENDERED / name).read_text(encoding="utf-8")
        assert text == manifests.rendered(name, MANIFESTS[name])

    def test_helm_finds_no_fault(self) -> None:
        for values in (self.EXAMPLE, self.EVERYTHING, self.TWO_DAEMONS):
            command = [manifests.helm(), "lint", "--strict", "--quiet", str(CHART), "-f", values]
            subprocess.run(
                [*command, "--kube-version", manifests.KUBE_VERSION], check=True, cwd=ROOT
            )

    @pytest.mark.parametrize(
        ("kind", "count"), [("Job", 11), ("JobWithExecutors", 14), ("SparkApplication", 11)]
    )
    def test_every_object_is_valid(self, kind: str, count: int) -> None:
        found = self.everything("--set", f"mirror.kind={kind}")
        assert len(found) == count
        validate(found)

    def test_the_object_of_the_spark_operator_is_valid(self) -> None:
        folder = go_module(SPARK_OPERATOR) / "config/crd/bases"
        (schema,) = schemas_of(folder.glob("*_sparkapplications.yaml")).values()
        schema["properties"]["metadata"] = {}
        validator = jsonschema.Draft202012Validator(without_unknown(schema))
        settings = "mirror.sparkConf.spark\\.dynamicAllocation\\.enabled=true"
        found = self.everything("--set", "mirror.kind=SparkApplication", "--set", settings)
        application = one(found, "SparkApplication")
        validator.validate(application)
        assert application["spec"]["sparkConf"] == {"spark.dynamicAllocation.enabled": "true"}
        application["spec"]["executor"]["number"] = 2
        assert [error.json_path for error in validator.iter_errors(application)] == [
            "$.spec.executor"
        ]

    def test_the_objects_of_the_prometheus_operator_are_valid(self) -> None:
        schemas = operator_schemas()
        found = [each for each in self.everything() if each["apiVersion"] == OF_OPERATORS[0]]
        assert {each["kind"] for each in found} == {
            "ServiceMonitor",
            "PodMonitor",
            "PrometheusRule",
        }
        for each in found:
            jsonschema.Draft202012Validator(schemas[each["kind"]]).validate(each)

    def test_the_rules_are_those_of_the_file_with_the_address_of_the_runbooks(self) -> None:
        groups = one(self.everything(), "PrometheusRule")["spec"]["groups"]
        urls = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}
        assert all(url.startswith("https://git.example/binlog-dispatcher/docs/") for url in urls)
        alerts = (DEPLOY / "prometheus/alerts.yaml").read_bytes()
        original = yaml.safe_load(alerts)["groups"]
        assert [len(group["rules"]) for group in groups] == [len(g["rules"]) for g in original]

    @pytest.mark.parametrize(
        ("queues", "want"),
        [
            # (queues + 4 MiB each) * 1.25 + 384 MiB
            (["64MiB"], 384 + 85),
            (["1GiB", "128 MiB"], 384 + 1450),
            (["67108864"], 384 + 85),
            (["1500kB"], 384 + 7),
        ],
    )
    def test_the_memory_limit_follows_from_the_queues(self, queues: list[str], want: int) -> None:
        sets = []
        for n, size in enumerate(queues):
            sets += ["--set", f"consumers.c{n}.mysql=repl@db:3306"]
            sets += ["--set", f"consumers.c{n}.max_bytes_in_binlog_queue={size}"]
        found = objects(manifests.template(*sets))
        (container,) = one(found, "StatefulSet")["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["memory"] == f"{want}Mi"

    def test_a_change_of_the_settings_restarts_the_pod_unless_that_is_off(self) -> None:
        def annotations(*more: str) -> Object:
            found = objects(manifests.template("-f", self.EXAMPLE, *more))
            metadata = one(found, "StatefulSet")["spec"]["template"]["metadata"]
            return dict(metadata["annotations"])

        changed = ("--set", "log.level=debug")
        assert annotations() != annotations(*changed)
        off = ("--set", "restartOnChange=false")
        assert annotations(*off) == annotations(*off, *changed)

    def two_daemons(self, *more: str) -> list[Object]:
        found = objects(manifests.template("-f", self.TWO_DAEMONS, *more))
        validate(found)
        return found

    def test_pods_that_are_all_ready_are_updated_and_drained_one_at_a_time(self) -> None:
        found = self.two_daemons("--set", "readiness=all")
        spec = one(found, "StatefulSet")["spec"]
        assert spec["updateStrategy"] == {"type": "RollingUpdate"}
        (container,) = spec["template"]["spec"]["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz?standby"
        budget = one(found, "PodDisruptionBudget")["spec"]
        assert budget["maxUnavailable"] == 1
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"

    @pytest.mark.parametrize("readiness", ["leader", "all"])
    def test_evictions_can_be_refused(self, readiness: str) -> None:
        off = ("--set", "podDisruptionBudget.maxUnavailable=0")
        found = self.two_daemons("--set", f"readiness={readiness}", *off)
        assert one(found, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 0

    def test_a_given_affinity_replaces_the_chart_s(self) -> None:
        found = self.two_daemons("--set-json", 'affinity={"nodeAffinity":{}}')
        pod = one(found, "StatefulSet")["spec"]["template"]["spec"]
        assert pod["affinity"] == {"nodeAffinity": {}}

    def test_the_mirror_has_the_addresses_of_all_daemons(self) -> None:
        mirror = ("-f", self.EVERYTHING, "-f", self.TWO_DAEMONS, "--set", "replicas=3")
        found = objects(manifests.template(*mirror))
        data = named(found, "ConfigMap", "binlog-dispatcher-mirror")["data"]
        where = "binlog-dispatcher-pods.binlog-dispatcher:8085"
        assert yaml.safe_load(data["mirror.yaml"])["url"] == ",".join(
            f"http://binlog-dispatcher-{n}.{where}" for n in range(3)
        )

    def test_a_certificate_makes_readers_probes_and_prometheus_use_https(
        self, tmp_path: Path
    ) -> None:
        found = self.two_daemons("--set", "apiTlsSecret=api,serviceMonitor.enabled=true")
        text = one(found, "ConfigMap")["data"]["dispatcher.yaml"]
        api = yaml.safe_load(text)["api"]
        assert api["advertise"].startswith("https://${POD_NAME}.")
        pod = one(found, "StatefulSet")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        probes = [
            container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
        ]
        assert [probe["scheme"] for probe in probes] == ["HTTPS"] * 3
        (endpoint,) = one(found, "ServiceMonitor")["spec"]["endpoints"]
        assert endpoint["scheme"] == "https"
        (volume,) = (each for each in pod["volumes"] if each.get("secret"))
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == volume["name"])
        folder = mount["mountPath"]
        assert api["tls"] == {"cert": f"{folder}/tls.crt", "key": f"{folder}/tls.key"}
        for name in ("tls.crt", "tls.key"):
            (tmp_path / name).touch()
        text = text.replace(folder, str(tmp_path))
        assert settings_of(text, tmp_path, POD_NAME="pod-0").api.tls is not None

    def test_replication_clients_reach_the_front_by_tls(self, tmp_path: Path) -> None:
        found = self.two_daemons(
            "--set", "front.enabled=true,front.tlsSecret=front,front.port=3310"
        )
        pod = one(found, "StatefulSet")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (port,) = (each for each in container["ports"] if each["name"] == "front")
        data = one(found, "ConfigMap")["data"]
        front = yaml.safe_load(data["dispatcher.yaml"])["front"]
        assert front["listen"] == f"0.0.0.0:{port['containerPort']}"
        for name, number in (("", 3310), ("-pods", port["containerPort"])):
            ports = named(found, "Service", f"binlog-dispatcher{name}")["spec"]["ports"]
            assert {each["targetPort"]: each["port"] for each in ports}["front"] == number
        (volume,) = (each for each in pod["volumes"] if each.get("secret"))
        assert volume["secret"]["secretName"] == "front"
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == volume["name"])
        folder = mount["mountPath"]
        assert front["tls"] == {"cert": f"{folder}/tls.crt", "key": f"{folder}/tls.key"}
        for name in ("tls.crt", "tls.key"):
            (tmp_path / name).touch()
        text = data["dispatcher.yaml"].replace(folder, str(tmp_path))
        assert settings_of(text, tmp_path, POD_NAME="pod-0").front is not None
        ingress = one(found, "NetworkPolicy")["spec"]["ingress"]
        (rule,) = (each for each in ingress if each["ports"][0]["port"] == "front")
        (readers,) = rule["from"]
        assert readers["podSelector"]["matchLabels"]

    @pytest.mark.parametrize(("address", "port"), [("db", 3306), ("db:3307", 3307)])
    def test_one_daemon_may_have_its_state_in_a_database(self, address: str, port: int) -> None:
        state = f"state.mysql=dispatcher@{address}/binlog_dispatcher"
        found = self.two_daemons("--set", "replicas=1", "--set", state)
        spec = one(found, "StatefulSet")["spec"]
        assert "volumeClaimTemplates" not in spec and "updateStrategy" not in spec
        egress = one(found, "NetworkPolicy")["spec"]["egress"][0]["ports"]
        assert {each["port"] for each in egress} == {port, 3306}

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "consumers"),
            (("--set", "consumers.shop.mysql=repl@db:3306,consumers.shop.password=plain"), "password"),
            (("-f", EXAMPLE, "--set", "replicas=2"), "mysql"),
            (("-f", EXAMPLE, "--set", "replicas=0"), "replicas"),
            (("-f", EXAMPLE, "--set", "state.mysql=d@db/state"), "password"),
            (("-f", TWO_DAEMONS, "--set", "state.password=plain"), "password"),
            (("-f", TWO_DAEMONS, "--set", "readiness=some"), "readiness"),
            (("-f", EXAMPLE, "--set", "api.listen=0.0.0.0:1"), "api"),
            (("-f", EXAMPLE, "--set", "mirror.enabled=true"), "settings"),
            (("-f", EXAMPLE, "--set", "front.enabled=true"), "tlsSecret"),
            (("-f", EXAMPLE, "--set", "persistence.accessModes={ReadWriteMany}"), "accessModes"),
        ],
    )  # fmt: skip
    def test_wrong_values_are_refused(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refused(*arguments)

    @pytest.mark.parametrize("file", [COMPOSE, COMPOSE_TWO, QUICKSTART])
    def test_the_compose_file_follows_the_specification(self, file: str) -> None:
        checker = ROOT / ".cache/bin/compose-spec"
        done = subprocess.run(
            [checker, "--format", "json", DEPLOY / file],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["services"].keys() == compose(file)["services"].keys()


def operator_schemas() -> dict[str, Any]:
    """The schemas of the Prometheus operator's kinds, from its Go module."""
    folder = go_module(OPERATOR) / "example/prometheus-operator-crd"
    wanted = r"_(servicemonitors|podmonitors|prometheusrules)\.yaml$"
    return schemas_of(file for file in folder.glob("*.yaml") if re.search(wanted, file.name))


def go_module(name: str) -> Path:
    """Returns the folder of a Go module. Downloads the module if the folder does not exist."""
    done = subprocess.run(
        [go_program(), "mod", "download", "-json", name],
        capture_output=True, text=True, check=True, env={**os.environ, "GOFLAGS": "-modcacherw"}, cwd="/",
    )  # fmt: skip
    return Path(json.loads(done.stdout)["Dir"])


def schemas_of(files: Iterable[Path]) -> dict[str, Any]:
    """Returns the schemas of the custom resource definitions in `files`, by kind."""
    specs = [yaml.safe_load(file.read_bytes())["spec"] for file in files]
    return {
        spec["names"]["kind"]: spec["versions"][0]["schema"]["openAPIV3Schema"] for spec in specs
    }


def without_unknown(schema: Any) -> Any:
    """Returns the schema, changed so that unknown properties are errors, because Kubernetes would silently drop these
    properties."""
    if isinstance(schema, list):
        return [without_unknown(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: without_unknown(one) for name, one in schema.items()}
    closed = "properties" in schema and "x-kubernetes-preserve-unknown-fields" not in schema
    return (
        {"additionalProperties": False} | inner
        if closed and schema.get("type") == "object"
        else inner
    )


def go_program() -> str:
    bundled = ROOT / ".cache/go/bin/go"
    return str(bundled) if bundled.exists() else "go"


def test_a_plain_password_is_refused_by_the_daemon_without_its_secret(
    daemon: list[Object], tmp_path: Path
) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text(one(daemon, "ConfigMap")["data"]["dispatcher.yaml"], encoding="utf-8")
    with pytest.raises(BinlogError, match="REPL_PASSWORD"):
        load_settings([file], environment={})
