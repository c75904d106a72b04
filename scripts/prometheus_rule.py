"""Write `configs/k8s/rules.yaml`: the rules of `configs/prometheus/` as a PrometheusRule, which the Prometheus operator loads.

python scripts/prometheus_rule.py            writes the file
python scripts/prometheus_rule.py --check    ends with 1 when the file is not what the rules say
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CONFIGS = Path(__file__).parents[1] / "configs"
SOURCES = ("recording.yml", "alerts.yml")
FILE = CONFIGS / "k8s" / "rules.yaml"
HEAD = """\
# Made by scripts/prometheus_rule.py out of configs/prometheus/; change the rules there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: stretto
  labels: {app.kubernetes.io/part-of: stretto}
spec:
  groups:
"""


def document() -> str:
    """The whole file: the groups' own text, two columns to the right."""
    lines = []
    for name in SOURCES:
        _, _, groups = (CONFIGS / "prometheus" / name).read_text("utf-8").partition("\ngroups:\n")
        if not groups:
            raise SystemExit(f"{name}: expected a line 'groups:'")
        lines += [f"  {line}".rstrip() for line in groups.splitlines()]
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Write or check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 when the file is out of date")
    text = document()
    if not parser.parse_args().check:
        FILE.write_text(text, "utf-8")
        return 0
    if not FILE.is_file() or FILE.read_text("utf-8") != text:
        print(f"{FILE.name} is not what the rules say; run: python scripts/prometheus_rule.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
