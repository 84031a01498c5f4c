"""Checks helm/examples with Envoy itself and with Gateway API's types, and that they name Services of the chart.

Run by scripts/test-helm.sh, which installs the tools.
"""

import json
import pathlib
import re
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
EXAMPLES = ROOT / "helm" / "examples"
TSC = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"]

problems = []


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TOOLS)
    if done.returncode != 0:
        problems.append(f"{pathlib.Path(command[0]).name}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def services():
    """The ports of the chart's Services by name, with the release and the namespace that the examples have."""
    template = ["template", "reranker", ROOT / "helm" / "rerankd", "--namespace", "search", "--set", "http.enabled=true"]
    rendered = yaml.safe_load_all(run(TOOLS / "bin" / "helm", *template))
    objects = [item for item in rendered if item and item["kind"] == "Service"]
    return {item["metadata"]["name"]: {port["port"] for port in item["spec"]["ports"]} for item in objects}


def check_envoy(file, known):
    run(TOOLS / "bin" / "envoy", "--mode", "validate", "--log-level", "warning", "--config-path", file)
    for name, port in re.findall(r"address: (\S+)\.search\.svc\.cluster\.local, port_value: (\d+)", file.read_text()):
        if int(port) not in known.get(name, ()):
            problems.append(f"{file.name}: the chart has no Service {name} with port {port}")


def check_gateway_api(file, known):
    """The compiler finds unknown fields and values, the validators find wrong patterns."""
    objects = [item for item in yaml.safe_load_all(file.read_text()) if item]
    lines = []
    for number, item in enumerate(objects):
        body = {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}
        lines.append(f'import {{ {item["kind"]} as K{number} }} from "@kubernetes-models/gateway-api/{item["apiVersion"]}";')
        lines.append(f"new K{number}({json.dumps(body)}).validate();")
        for rule in item["spec"].get("rules", []):
            for backend in rule["backendRefs"]:
                if backend["port"] not in known.get(backend["name"], ()):
                    problems.append(f"{file.name}: the chart has no Service {backend['name']} with port {backend['port']}")
        for target in item["spec"].get("targetRefs", []):
            if target["name"] not in known:
                problems.append(f"{file.name}: the chart has no Service {target['name']}")
    program = TOOLS / "gateway-api.mts"
    program.write_text("\n".join(lines))
    run(TOOLS / "node_modules" / ".bin" / "tsc", *TSC, program)
    plain = program.with_suffix(".mjs")
    plain.write_text(program.read_text())
    run("node", plain)


known = services()
check_envoy(EXAMPLES / "envoy.yaml", known)
check_gateway_api(EXAMPLES / "gateway-api.yaml", known)
for problem in problems:
    print(f"test-gateways: {problem}", file=sys.stderr)
if problems:
    sys.exit(1)
print("test-gateways: envoy.yaml and gateway-api.yaml: no problem")
