"""Lint, render and validate the chart, in an environment that has Helm's own code and the schemas of Kubernetes.

Reads a list of values as JSON, and prints for each the rendered objects, or what Helm says against it.
"""

import json
import sys

import helm_python
import kubernetes_validate
import yaml

KUBERNETES = "1.31.0"


def rendered(chart: helm_python.Chart, values: dict) -> dict:
    try:
        chart.validate_schema(values)
        files = chart.render(values, name="shop", namespace="prod")
    except helm_python.HelmError as error:
        return {"error": str(error)}
    objects = [each for text in files.values() for each in yaml.safe_load_all(text) if each]
    for each in objects:
        if each["apiVersion"] != "keda.sh/v1alpha1":  # its schema is not among those of Kubernetes
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
    return {"objects": objects}


path = sys.argv[1]
linted = helm_python.lint(path, strict=True)
chart = helm_python.Chart.load(path)
found = {"lint": linted, "rendered": [rendered(chart, values) for values in json.load(sys.stdin)]}
sys.stdout.write(json.dumps(found))
