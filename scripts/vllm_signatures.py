"""Write `engine/vllm_args/signatures.json` out of vLLM wheels: which argument exists in which release.

    for v in 0.26.0 0.27.1 ...; do pip download --no-deps -d wheels vllm==$v; done
    python scripts/vllm_signatures.py wheels/*.whl

Reads sources only (by syntax tree), imports nothing of vLLM. Each name maps to the first and last of the given releases that have it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from pathlib import Path

TARGET = Path(__file__).parent.parent / "engine/vllm_args/signatures.json"
ENGINE_ARGUMENTS = "vllm/engine/arg_utils.py"
QUANTIZATION = "vllm/model_executor/layers/quantization/__init__.py"


def fields(source: str, name: str) -> list[str]:
    """Annotated fields of class `name`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            lines = [line for line in node.body if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation)]
            return [line.target.id for line in lines if isinstance(line.target, ast.Name) and not line.target.id.startswith("_")]
    raise SystemExit(f"no class {name} in this source; vLLM has moved it")


def parameters(source: str, owner: str, name: str) -> list[str]:
    """Parameters of method `owner.name`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for line in node.body:
                if isinstance(line, ast.AsyncFunctionDef | ast.FunctionDef) and line.name == name:
                    return [a.arg for a in (*line.args.args, *line.args.kwonlyargs) if a.arg != "self"]
    raise SystemExit(f"no {owner}.{name} in this source; vLLM has moved it")


def read(wheel: Path) -> tuple[str, dict[str, list[str]]]:
    """Release and its names by kind."""
    with zipfile.ZipFile(wheel) as archive:

        def text(member: str) -> str:
            return archive.read(member).decode()

        arguments = text(ENGINE_ARGUMENTS)
        server = next(name for name in archive.namelist() if name.startswith("vllm/entrypoints/") and name.endswith("/cli_args.py"))
        methods = re.search(r"QuantizationMethods = Literal\[(.*?)\]", text(QUANTIZATION), re.DOTALL)
        assert methods is not None, "vLLM has moved its quantization names"
        return wheel.name.split("-")[1], {
            "arguments": fields(arguments, "EngineArgs") + fields(arguments, "AsyncEngineArgs"),
            "server": fields(text(server), "BaseFrontendArgs") + fields(text(server), "FrontendArgs"),
            "sampling": fields(text("vllm/sampling_params.py"), "SamplingParams"),
            "generate": parameters(text("vllm/v1/engine/async_llm.py"), "AsyncLLM", "generate"),
            "quantization": re.findall(r'"([^"]+)"', methods[1]),
        }


def main(wheels: list[Path]) -> None:
    """Write the file."""
    read_all = sorted((read(wheel) for wheel in wheels), key=lambda pair: [int(part) for part in pair[0].split(".")])
    releases = [release for release, _ in read_all]
    table: dict[str, object] = {"releases": releases}
    for kind in read_all[0][1]:
        names = sorted({name for _, kinds in read_all for name in kinds[kind]})
        having = {name: [release for release, kinds in read_all if name in kinds[kind]] for name in names}
        table[kind] = {name: [found[0], found[-1]] for name, found in having.items()}
    lines = json.dumps(table, indent=0).replace("[\n", "[").replace("\n]", "]")
    TARGET.write_text(re.sub(r'",\n"(\d)', r'", "\1', lines) + "\n")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
