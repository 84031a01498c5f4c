"""Renders the chart with every value set of helm/rerankd/ci and checks the objects. Run by scripts/test-helm.sh."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "rerankd"
TOOLS = ROOT / ".tools" / "bin"
RENDERED = ROOT / "target" / "helm"

# The oldest version that the chart supports, and the newest one that has installed schemas.
VERSIONS = ["1.30", "1.37"]
# Kinds that other projects define, for which Kubernetes has no schema.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
# Findings that are not faults: the policy, the kind of object, and the reason.
EXCEPTIONS = {
    ("CKV_K8S_43", "StatefulSet"): "the operator chooses whether to set image.digest",
    ("CKV_K8S_43", "Pod"): "the operator chooses whether to set image.digest",
    ("CKV_K8S_15", "StatefulSet"): "tags are not reused",
    ("CKV_K8S_15", "Pod"): "tags are not reused",
    ("CKV_K8S_35", "StatefulSet"): "the client of the Hub reads HF_TOKEN; only the init container has it",
    ("CKV_K8S_8", "Pod"): "the connection test ends by itself",
    ("CKV_K8S_9", "Pod"): "the connection test ends by itself",
    ("CKV2_K8S_6", "Pod"): "the connection test accepts no connections",
}
# Values that the chart must refuse, and a part of the message.
REFUSED = {
    "allowInsecure=false": "the server would be open",
    "tls.enabled=true": "tls.existingSecret",
    "auth.enabled=true": "auth.existingSecret",
    "tls.enabled=true,tls.existingSecret=t,metrics.enabled=false": "metrics.enabled",
    "autoscaling.enabled=true,keda.enabled=true": "keda.enabled",
    "keda.enabled=true,keda.minReplicas=0": "keda.minReplicas",
    "autoscaling.enabled=true,autoscaling.targetCPU=0": "targetCPU",
    "metrics.port=50051": "must differ",
    "config.tls.certificate=/own/tls.crt": "config.tls",
    "config.auth.tokens_file=/own/tokens": "config.auth",
    "config.server.listen=0.0.0.0:1": "config.server.listen: is set by the chart",
    "models.inImage=true,models.cache.existingClaim=c": "models.inImage",
    "models.inImage=true,gpu.enabled=true": "the image for GPUs has no models",
    "autoscaling.enabled=true,autoscaling.minReplicas=9,autoscaling.maxReplicas=2": "autoscaling.minReplicas",
    "keda.enabled=true,keda.minReplicas=9,keda.maxReplicas=2": "keda.minReplicas",
    "listenAddress=127.0.0.1": "must be reachable",
    "replicas=many": "replicas",
    "listenAddress=::": "listenAddress",
    "nonsense=1": "nonsense",
    "service.grpcPort=0": "grpcPort",
    "probes.startup.successThreshold=2": "successThreshold",
    "probes.liveness.successThreshold=2": "successThreshold",
}

problems = []


def check(condition, problem):
    if not condition:
        problems.append(problem)


def helm(*arguments):
    return subprocess.run([TOOLS / "helm", *arguments], capture_output=True, text=True, check=False)


def within(labels, selector):
    return selector.items() <= labels.items()


def check_set(name, objects, given):
    """Checks that the objects of one rendering agree with each other."""
    kinds = {}
    for item in objects:
        kinds.setdefault(item["kind"], []).append(item)
        for version in VERSIONS:
            if item["kind"] not in FOREIGN:
                where = f"{name}: {item['kind']} {item['metadata']['name']}"
                try:
                    kubernetes_validate.validate(item, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    problems.append(f"{where}: Kubernetes {version}: {error.message} at {list(error.path)}")
    (stateful,) = kinds["StatefulSet"]
    template = stateful["spec"]["template"]
    labels, pod = template["metadata"]["labels"], template["spec"]
    (server,) = pod["containers"]

    check(within(labels, stateful["spec"]["selector"]["matchLabels"]), f"{name}: the StatefulSet does not select its pods")
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    services = kinds["Service"]
    check(stateful["spec"]["serviceName"] in [item["metadata"]["name"] for item in services], f"{name}: serviceName names no Service")
    for service in services:
        check(within(labels, service["spec"]["selector"]), f"{name}: a Service does not select the pods")
        for port in service["spec"]["ports"]:
            check(ports.get(port["targetPort"]) == port["port"], f"{name}: a Service's port {port['name']} is not the container's")
    for budget in kinds.get("PodDisruptionBudget", []):
        check(within(labels, budget["spec"]["selector"]["matchLabels"]), f"{name}: the PodDisruptionBudget selects nothing")
    for policy in kinds.get("NetworkPolicy", []):
        check(within(labels, policy["spec"]["podSelector"]["matchLabels"]), f"{name}: the NetworkPolicy selects nothing")
        open_ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
        check(sorted(open_ports) == sorted(ports), f"{name}: the NetworkPolicy opens {open_ports}, not {list(ports)}")
    for monitor in kinds.get("ServiceMonitor", []):
        selected = [s for s in services if within(s["metadata"]["labels"], monitor["spec"]["selector"]["matchLabels"])]
        check(len(selected) == 1, f"{name}: the ServiceMonitor selects {len(selected)} Services")
        named = {port["name"] for service in selected for port in service["spec"]["ports"]}
        check("metrics" in named, f"{name}: the ServiceMonitor's Service has no metrics")
    for scaled in kinds.get("HorizontalPodAutoscaler", []) + kinds.get("ScaledObject", []):
        check("replicas" not in stateful["spec"], f"{name}: two objects set the number of replicas")
        check(scaled["spec"]["scaleTargetRef"]["name"] == stateful["metadata"]["name"], f"{name}: the autoscaler does not scale the StatefulSet")

    claims = [claim["metadata"]["name"] for claim in stateful["spec"].get("volumeClaimTemplates", [])]
    volumes = [volume["name"] for volume in pod["volumes"]] + claims
    check(len(set(volumes)) == len(volumes), f"{name}: two volumes have one name: {volumes}")
    for container in [*pod.get("initContainers", []), server]:
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        check(mounted == set(volumes), f"{name}: {container['name']} mounts {mounted}, volumes are {volumes}")
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"]:
        (action,) = [server[probe][kind] for kind in ("grpc", "httpGet", "tcpSocket") if kind in server[probe]]
        check(action["port"] in [*ports, *ports.values()], f"{name}: {probe} asks port {action['port']}")

    check_configuration(name, kinds, pod, server, ports, given)


def check_configuration(name, kinds, pod, server, ports, given):
    maps = [item["data"] for item in kinds["ConfigMap"] if "rerankd.toml" in item["data"]]
    check(len(maps) == 1, f"{name}: {len(maps)} ConfigMaps have a rerankd.toml")
    text = maps[0]["rerankd.toml"]
    config = tomllib.loads(text)
    for section, keys in given.items():
        for key, value in keys.items():
            kept = config[section].get(key)
            check((type(kept), kept) == (type(value), value), f"{name}: {section}.{key} is {kept!r} in rerankd.toml, {value!r} in the values")
    listening = {"grpc": config["server"]["listen"], **{key: config[key]["listen"] for key in ("http", "metrics") if config.get(key, {}).get("listen", "off") != "off"}}
    # One of the value sets is for an IPv6 cluster.
    address = "[::]" if name == "tls" else "0.0.0.0"
    expected = {key: f"{address}:{port}" for key, port in ports.items()}
    check(listening == expected, f"{name}: the server listens on {listening}, the container on {expected}")
    secured = "tls" in config or "auth" in config
    check(config["server"].get("allow_insecure", False) != secured, f"{name}: allow_insecure must be true exactly without TLS and tokens")
    phases = [config["server"]["lame_duck_seconds"], config["server"]["drain_seconds"], server["lifecycle"]["preStop"]["sleep"]["seconds"]]
    check(pod["terminationGracePeriodSeconds"] >= sum(phases) + 10, f"{name}: the grace period ends before {phases} and ten seconds")
    mounts = [mount["mountPath"] for mount in server["volumeMounts"]]
    for path in [*config.get("tls", {}).values(), *config.get("auth", {}).values()]:
        check(any(path.startswith(f"{mount}/") for mount in mounts), f"{name}: {path} is not mounted")

    binary = os.environ.get("RERANKD") or ROOT / "target" / "release" / "rerankd"
    if not pathlib.Path(binary).is_file():
        return
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "catalog.toml").write_text(maps[0].get("catalog.toml", ""))
        file = pathlib.Path(folder) / "rerankd.toml"
        file.write_text(text.replace("/etc/rerankd/", f"{folder}/"))
        answer = subprocess.run([binary, "check-config", "--config", file], capture_output=True, text=True, check=False)
        check(answer.returncode == 0, f"{name}: rerankd.toml is refused: {answer.stderr}")


def check_kserve():
    """KServe's kinds have no installed schema, so the container is checked as part of a Pod, and the rest by name."""
    runtime, service = yaml.safe_load_all((CHART.parent / "examples" / "kserve.yaml").read_text())
    spec, model = runtime["spec"], service["spec"]["predictor"]["model"]
    for version in VERSIONS:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reranker"}, "spec": {"containers": spec["containers"]}}
        try:
            kubernetes_validate.validate(pod, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            problems.append(f"kserve.yaml: Kubernetes {version}: {error.message} at {list(error.path)}")
    check(model["runtime"] == runtime["metadata"]["name"], "kserve.yaml: the InferenceService names another runtime")
    formats = [{"name": known["name"], "version": known["version"]} for known in spec["supportedModelFormats"]]
    check(model["modelFormat"] in formats, f"kserve.yaml: the runtime supports {formats}, not {model['modelFormat']}")
    (container,) = spec["containers"]
    arguments = container["args"]
    ports = {f"--http-listen=0.0.0.0:{port['containerPort']}" for port in container["ports"]}
    ports |= {f"--set=metrics.listen=0.0.0.0:{spec['annotations']['prometheus.kserve.io/port']}"}
    check(ports <= set(arguments), f"kserve.yaml: the arguments lack one of {ports}")
    binary = os.environ.get("RERANKD") or ROOT / "target" / "release" / "rerankd"
    if pathlib.Path(binary).is_file():
        settings = [argument for argument in arguments if argument.startswith("--set=")]
        answer = subprocess.run([binary, "check-config", *settings], capture_output=True, text=True, check=False)
        check(answer.returncode == 0, f"kserve.yaml: the settings are refused: {answer.stderr}")


def check_policies():
    checkov = [TOOLS / "checkov", "--directory", RENDERED, "--framework", "kubernetes", "--skip-download", "--quiet", "--output", "json"]
    report = json.loads(subprocess.run(checkov, capture_output=True, text=True, check=False).stdout)
    check(report["summary"]["passed"] > 100 and report["summary"]["parsing_errors"] == 0, f"policies: too few checks passed, or a file did not parse: {report['summary']}")
    used = set()
    for finding in report["results"]["failed_checks"]:
        policy, kind = finding["check_id"], finding["resource"].split(".")[0]
        used.add((policy, kind))
        if (policy, kind) not in EXCEPTIONS:
            problems.append(f"{finding['file_path']}: {finding['resource']}: {policy}: {finding['check_name']}")
    for policy, kind in EXCEPTIONS.keys() - used:
        problems.append(f"the exception for {policy} of {kind} is not needed")


def main():
    shutil.rmtree(RENDERED, ignore_errors=True)
    RENDERED.mkdir(parents=True)
    sets = {"default": [], **{path.name.removesuffix("-values.yaml"): ["--values", path] for path in sorted(CHART.glob("ci/*-values.yaml"))}}
    if not (CHART / "files" / "alerts.yaml").is_file():
        print("test-helm: no files/alerts.yaml: the value set monitoring is skipped", file=sys.stderr)
        del sets["monitoring"]
    crate = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    check(chart == crate, f"Chart.yaml: appVersion is {chart}, the crate's version {crate}")
    for name, values in sets.items():
        lint = helm("lint", "--strict", CHART, *values)
        check(lint.returncode == 0, f"{name}: helm lint: {lint.stdout}{lint.stderr}")
        for version in VERSIONS:
            template = ["template", "reranker", CHART, "--namespace", "search", "--kube-version", version, *values]
            shown = helm(*template)
            check(shown.returncode == 0, f"{name}: helm template: {shown.stderr}")
            check(shown.stdout == helm(*template).stdout, f"{name}: two renderings differ")
        if shown.returncode == 0:
            (RENDERED / f"{name}.yaml").write_text(shown.stdout)
            given = yaml.safe_load(values[1].read_text()).get("config", {}) if values else {}
            check_set(name, [item for item in yaml.safe_load_all(shown.stdout) if item], given)
    for values, message in REFUSED.items():
        shown = helm("template", "reranker", CHART, "--set", values)
        check(shown.returncode != 0 and message in shown.stderr, f"--set {values} is not refused with {message!r}: {shown.stderr}")

    check_kserve()
    check_policies()

    for problem in problems:
        print(f"test-helm: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"test-helm: {len(sets)} value sets, Kubernetes {' and '.join(VERSIONS)}: no problem")


main()
