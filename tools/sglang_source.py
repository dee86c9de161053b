"""What a version of SGLang knows, read from its unpacked wheel with :mod:`ast`; nothing is run.

Every option string with how many values it takes, their type, choices and default, the
architectures the version registers, which of their models can hand hidden states to an EAGLE-3
draft, and what each quantisation method asks for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

BARE_ACTIONS = {"store_true", "store_false", "store_const", "DeprecatedStoreTrueAction"}
TYPES = {"int", "float", "str", "human_readable_int"}
CAPTURE = "set_eagle3_layers_to_capture"


class Constants:
    """Module-level lists of strings, resolved as far as literals go; and the defaults of fields."""

    def __init__(self, trees: list[ast.Module]) -> None:
        self.values: dict[str, list[Any]] = {}
        self.defaults: dict[str, ast.expr] = {}
        self.retired_raises = any(retired_raises(tree) for tree in trees)
        for tree in trees:
            for node in tree.body:
                match node:
                    case (
                        ast.Assign(targets=[ast.Name(id=name)])
                        | ast.AnnAssign(target=ast.Name(id=name))
                    ):
                        found = self.read(node.value)
                        if found is not None:
                            self.values[name] = found
                    case ast.ClassDef(name="ServerArgs"):
                        self.defaults = {
                            f.target.id: f.value
                            for f in node.body
                            if isinstance(f, ast.AnnAssign)
                            and isinstance(f.target, ast.Name)
                            and f.value is not None
                        }

    def default(self, node: ast.expr | None) -> Any:
        """A literal default, or that of the field it refers to; None where it is none of both."""
        if isinstance(node, ast.Attribute) and name_of(node.value) == "ServerArgs":
            node = self.defaults.get(node.attr)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
            return node.value
        return None

    def read(self, node: ast.expr | None) -> list[Any] | None:
        """The list that an expression stands for, or None where only running it would tell."""
        match node:
            case ast.Constant(value=None):
                return [None]
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                out: list[Any] = []
                for item in items:
                    if isinstance(item, ast.Constant):
                        out.append(item.value)
                    elif isinstance(item, ast.Starred):
                        inner = self.read(item.value)
                        if inner is None:
                            return None
                        out += inner
                    else:
                        return None
                return out
            case ast.Name(id=name):
                return self.values.get(name)
            case ast.Call(func=ast.Name(id="set" | "list" | "sorted"), args=[inner_node]):
                return self.read(inner_node)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                a, b = self.read(left), self.read(right)
                return a + b if a is not None and b is not None else None
        return None


def retired_raises(tree: ast.Module) -> bool:
    """Whether the action for retired flags raises (0.5.3) rather than warns (later versions)."""
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef) and cls.name == "DeprecatedAction":
            calls = [f for f in cls.body if isinstance(f, ast.FunctionDef) and f.name == "__call__"]
            return any(isinstance(f.body[0], ast.Raise) for f in calls)
    return False


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8-sig"))


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The keyword arguments of a call by name."""
    return {k.arg: k.value for k in call.keywords if k.arg}


def name_of(node: ast.expr | None) -> str:
    """The last part of a name, attribute or string constant."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
    return ""


def option(names: list[str], kw: dict[str, ast.expr], constants: Constants) -> dict[str, Any]:
    """One option as data: values it takes (0, 1, ?, +, *), type, choices, deprecation."""
    entry: dict[str, Any] = {"names": names}
    action = name_of(kw.get("action"))
    nargs = kw.get("nargs")
    if action == "BooleanOptionalAction":
        entry["names"] = names + ["--no-" + n[2:] for n in names]
        entry["values"] = 0
    elif action in BARE_ACTIONS or (action == "DeprecatedAction" and nargs is None):
        entry["values"] = 0
    elif isinstance(nargs, ast.Constant) and nargs.value is not None:
        entry["values"] = nargs.value
    else:
        entry["values"] = "+" if action == "LoRAPathAction" else 1
    if "Deprecated" in action:
        message = kw.get("error_message")
        stops = constants.retired_raises or isinstance(message, ast.Constant)
        entry["deprecated"] = "error" if stops else "warning"
        replacement = name_of(kw.get("new_flag"))
        if replacement:
            entry["replacement"] = replacement
    kind = name_of(kw.get("type"))
    if kind:
        is_json = kind in ("loads", "json_list_type")
        entry["type"] = "json" if is_json else kind if kind in TYPES else "other"
    choices = constants.read(kw.get("choices"))
    if choices:
        entry["choices"] = sorted(choices, key=str)
    default = constants.default(kw.get("default"))
    if default is not None and entry["values"] != 0:
        entry["default"] = default
    return entry


def parser_calls(tree: ast.AST, constants: Constants) -> Iterator[dict[str, Any]]:
    """Options added by ``parser.add_argument`` anywhere in the tree."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            names = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if names and str(names[0]).startswith("-"):
                yield option([str(n) for n in names], keywords(node), constants)


def annotated_fields(tree: ast.Module, constants: Constants) -> Iterator[dict[str, Any]]:
    """Options declared as annotated fields (``name: A[type, Arg(...)]``), the form of 0.5.23."""
    for cls in tree.body:
        if not isinstance(cls, ast.ClassDef):
            continue
        for node in cls.body:
            match node:
                case ast.AnnAssign(
                    target=ast.Name(id=field),
                    annotation=ast.Subscript(
                        value=ast.Name(id="A" | "Annotated"), slice=ast.Tuple(elts=[kind, *meta])
                    ),
                ):
                    entry = annotated(field, kind, meta, constants)
                    default = constants.default(node.value)
                    if entry and default is not None and entry["values"] != 0:
                        entry["default"] = default
                    if entry:
                        yield entry


def annotated(
    field: str, kind: ast.expr, meta: list[ast.expr], constants: Constants
) -> dict[str, Any] | None:
    """The option of one annotated field, or None where it has no command-line form."""
    arg = next((m for m in meta if isinstance(m, ast.Call) and name_of(m.func) == "Arg"), None)
    described = any(isinstance(m, ast.Constant | ast.JoinedStr | ast.BinOp) for m in meta)
    if arg is None and not described:
        return None
    kw = keywords(arg) if arg else {}
    if isinstance(kw.get("no_cli"), ast.Constant):
        return None
    cli = kw.get("cli_name")
    names = [name_of(cli) if cli else "--" + field.replace("_", "-")]
    names += [str(a) for a in constants.read(kw.get("aliases")) or []]
    inner = kind
    if isinstance(inner, ast.Subscript) and name_of(inner.value) == "Optional":
        inner = inner.slice
    if isinstance(inner, ast.BinOp):
        inner = inner.left
    made = dict(kw)
    if "action" not in kw:
        base = name_of(inner.value) if isinstance(inner, ast.Subscript) else name_of(inner)
        if base == "bool":
            made["action"] = ast.Constant("store_true")
        elif base == "Literal" and isinstance(inner, ast.Subscript):
            literal = inner.slice
            items = literal.elts if isinstance(literal, ast.Tuple) else [literal]
            made.setdefault("choices", ast.List(elts=items))
        elif base.lower() == "list" and "type_parser" not in kw:
            made.setdefault("nargs", ast.Constant("+"))
        elif base in TYPES:
            made["type"] = ast.Name(id=base)
    if "type_parser" in kw:
        made["type"] = kw["type_parser"]
    return option(names, made, constants)


def members(path: Path, name: str) -> list[str]:
    """The keys of a dict, or the items of a list, that is assigned to a name anywhere in a file."""
    for node in ast.walk(parsed(path)):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found))
            ) if found == name:
                value = node.value
                items = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", [])
                return [str(item.value) for item in items if isinstance(item, ast.Constant)]
    raise SystemExit(f"{path} has no {name}")


def late_choices(srt: Path) -> dict[str, list[str]]:
    """Choices that the parser collects from other modules while it is built."""
    auto = ["auto"] * ('["auto"] +' in (srt / "server_args.py").read_text(encoding="utf-8-sig"))
    reasoning = srt / "parser" / "reasoning_parser.py"
    calls = srt / "function_call" / "function_call_parser.py"
    modules = members(srt / "utils" / "common.py", "SUPPORTED_LORA_TARGET_MODULES")
    return {
        "--reasoning-parser": sorted([*auto, *members(reasoning, "DetectorMap")]),
        "--tool-call-parser": sorted([*auto, *members(calls, "ToolCallParserEnum")]),
        "--lora-target-modules": sorted([*modules, "all"]),
    }


def options(srt: Path) -> list[dict[str, Any]]:
    """Every option of the version's server parser, by first name."""
    server_args = parsed(srt / "server_args.py")
    groups = srt / "arg_groups"
    trees = [server_args]
    if (groups / "choices.py").exists():
        trees.insert(0, parsed(groups / "choices.py"))
    constants = Constants(trees)
    found = [*parser_calls(server_args, constants), *annotated_fields(server_args, constants)]
    for path in sorted((groups / "fields").glob("*.py")):
        tree = parsed(path)
        found += annotated_fields(tree, Constants([*trees, tree]))
    for name, choices in late_choices(srt).items():
        for entry in found:
            if name in entry["names"]:
                entry["choices"] = choices
    return sorted(found, key=lambda entry: str(entry["names"][0]))


def registered(models: Path) -> tuple[list[str], list[str], dict[str, Path]]:
    """All registered architectures, and those whose class has or inherits the capture method."""
    bases: dict[str, list[str]] = {}
    capable: set[str] = set()
    entries: dict[str, Path] = {}
    for path in sorted(models.glob("*.py")):
        for node in parsed(path).body:
            match node:
                case ast.ClassDef(name=name):
                    bases[name] = [name_of(b) for b in node.bases]
                    methods = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
                    if CAPTURE in methods:
                        capable.add(name)
                case ast.Assign(targets=[ast.Name(id="EntryClass")], value=value):
                    items = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                    entries.update({name_of(item): path for item in items})

    def captures(name: str, seen: frozenset[str] = frozenset()) -> bool:
        return name in capable or any(
            captures(base, seen | {name}) for base in bases.get(name, []) if base not in seen
        )

    return sorted(entries), sorted(n for n in entries if captures(n)), entries


def own_drafts(tree: ast.Module) -> list[str]:
    """Targets that double as their own draft: their class is replaced by a draft's on load.

    They are what ``_config_draft_model`` compares the first architecture with.
    """
    constants = Constants([tree])
    found: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or function.name != "_config_draft_model":
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Compare) or "architectures[0]" not in ast.unparse(
                node.left
            ):
                continue
            for side in node.comparators:
                if isinstance(side, ast.Constant):
                    found.add(str(side.value))
                else:
                    found.update(map(str, constants.read(side) or []))
    return sorted(name for name in found if "Draft" not in name)


def quantisation(folder: Path) -> dict[str, dict[str, Any]]:
    """Each method of ``--quantization`` that has a class.

    ``capability`` is the least compute capability (90 for 9.0) and ``files`` the configs beside
    config.json of which one must be there where config.json names no quantisation; without any,
    the class is made without arguments, and ``needs`` says that it cannot be.
    """
    classes: dict[str, ast.ClassDef] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, node)
    found: dict[str, dict[str, Any]] = {}
    for node in ast.walk(parsed(folder / "__init__.py")):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Name):
                found.setdefault(str(key.value), asked_of(value.id, classes))
    return found


def asked_of(name: str, classes: dict[str, ast.ClassDef]) -> dict[str, Any]:
    """What a quantisation class or one that it inherits from asks for, where that is a literal."""
    cls = classes.get(name)
    if cls is None:
        return {}
    out: dict[str, Any] = {}
    for base in cls.bases:
        out |= asked_of(name_of(base), classes)
    for function in cls.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        if function.name == "__init__":
            given = function.args
            out.pop("needs", None)
            if len(given.args) - len(given.defaults) > 1 or None in given.kw_defaults:
                out["needs"] = True
        returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
        if len(returns) != 1:
            continue
        match function.name, returns[0]:
            case "get_min_capability", ast.Constant(value=int(number)):
                out["capability"] = number
            case "get_config_filenames", ast.List(elts=items):
                out["files"] = [str(i.value) for i in items if isinstance(i, ast.Constant)]
    return out


def pinned(root: Path, package: str) -> str:
    """The version of a package that the wheel's metadata pins, empty where it pins none."""
    for path in root.glob("sglang-*.dist-info/METADATA"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, eq, version = line.removeprefix("Requires-Dist: ").partition("==")
            if eq and name.strip() == package and line.startswith("Requires-Dist"):
                return version.split(";")[0].strip()
    return ""


def variables(root: Path) -> list[str]:
    """Every SGLANG_ or SGL_ name that stands anywhere in the engine's source."""
    found: set[str] = set()
    for path in root.rglob("*.py"):
        found.update(
            re.findall(r"\b(?:SGLANG|SGL)_[A-Z0-9_]*[A-Z0-9]\b", path.read_text("utf-8-sig"))
        )
    return sorted(found)


ARGUMENTS = "server_args.py|arg_groups/*.py|arg_groups/*/*.py"


@cache
def lines_of(path: Path) -> list[str]:
    """A file's lines; one is asked many times."""
    return path.read_text(encoding="utf-8-sig").splitlines()


def place(srt: Path, mark: str, files: str = ARGUMENTS, *, last: bool = False) -> str:
    """``file:line`` of the first (or last) line of the first file that a mark is found in.

    ``files`` are patterns below ``srt``, separated by ``|``; empty where nothing is found.
    """
    pattern = re.compile(mark)
    for path in (p for part in files.split("|") for p in sorted(srt.glob(part))):
        lines = lines_of(path)
        found = [number for number, text in enumerate(lines, 1) if pattern.search(text)]
        if found:
            return f"{path.relative_to(srt)}:{found[-1 if last else 0]}"
    return ""
