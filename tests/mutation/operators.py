"""What is changed: every small wrong step that can be made in a file, found in its syntax tree.

Left alone is what no test can or should hold: docstrings, annotations, messages (`raise`, f-strings, warnings),
assertions, decorators, and declarations of parameters, whose values are data copied from a paper.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPPOSITE = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)

_PAIRS = "mean sum, min max, argmin argmax, any all, zeros ones, zeros_like ones_like, ceil floor, eval train"
#: A function or method is called by another name.
CALLED = {a: b for pair in _PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])}
CALLED |= {"log_softmax": "softmax", "union": "intersection", "setdefault": "get"}
#: `x.detach()` becomes `x`.
REMOVED = {"detach", "clone", "clamp", "abs", "square", "sqrt", "exp", "log", "roll", "copy", "flip", "float", "double"}

#: What these calls hold is not changed: declarations of parameters, errors and warnings, types, and declared special
#: cases, which a contract test carries out (one with another value that holds too is no wrong step).
QUIET = {
    "Limit",
    "oca_limit",
    "real",
    "integer",
    "choice",
    "flag",
    "other_default",
    "adam_lr",
    "sgd_lr",
    "temperature",
    "_weight",
    "UserError",
    "sentence",
    "bad_value",
    "warn",
    "simplefilter",
    "TypeVar",
    "cast",
}
#: Swapping two arguments of these says nothing, or stops at once. Of the distances and the similarity the gradients are
#: the same as well.
SYMMETRIC = {
    "min",
    "max",
    "minimum",
    "maximum",
    "isinstance",
    "hasattr",
    "getattr",
    "setattr",
    "zip",
    "gcd",
    "equal",
    "mse_loss",
    "cosine_similarity",
    "squared_distance",
    "_squared_distance",
    "print",
    "super",
}
#: Keyword arguments that assert, name an encoding, or choose a faster way of computing the same.
IDLE_KEYWORDS = {"strict", "encoding", "ensure_ascii", "fused", "set_to_none"}


@dataclass(frozen=True)
class Mutant:
    """One small wrong step: bytes `start` to `end` of `file` become `new`.

    function: the qualified name of what it stands in, empty at module level. line: its number, from 1. text: that line
    without indentation. nth: counts equal changes of equal lines of a function. what, test: where a person wrote the
    mutant, what is wrong then, and the replay that has to notice it."""

    file: str
    function: str
    line: int
    text: str
    kind: str
    start: int
    end: int
    old: str
    new: str
    nth: int = 0
    what: str = ""
    test: str = ""

    @property
    def change(self) -> str:
        """`old → new` on one line."""
        return f"{' '.join(self.old.split())} → {' '.join(self.new.split())}"

    @property
    def id(self) -> str:
        """Says the same after other lines have moved it."""
        return " | ".join([self.file, self.function, self.text, self.what or self.kind, f"{self.change} #{self.nth}"])

    def apply(self, source: str) -> str:
        """The file's text with the change."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> list[str]:
        """The lines that differ, without context."""
        lines = difflib.unified_diff(source.splitlines(), self.apply(source).splitlines(), n=0, lineterm="")
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    count: Counter[str] = Counter()
    found = []
    for mutant in sorted(finder.found, key=lambda m: (m.start, m.end, m.kind, m.new)):
        found.append(replace(mutant, nth=count[mutant.id]))
        count[mutant.id] += 1
    return found


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: str) -> None:
        self.file, self.lines = file, source.encode().splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.data = source.encode()
        self.scope: list[str] = []
        self.returns: list[str] = []
        self.depth = 0
        self.found: list[Mutant] = []

    # -- where we are ----------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.visit(default)
        self.scope.append(node.name)
        self.returns.append(ast.unparse(node.returns) if node.returns else "")
        self.depth += 1
        for statement in _without_docstring(node.body):
            self.visit(statement)
        self.depth -= 1
        self.returns.pop()
        self.scope.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        for statement in _without_docstring(node.body):
            self.visit(statement)
        self.scope.pop()

    def visit_Module(self, node: ast.Module) -> None:
        for statement in _without_docstring(node.body):
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Messages are for people."""

    visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Raise  # type: ignore[assignment]

    def _add(self, node: ast.expr | ast.stmt, kind: str, new: str) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        self.found.append(
            Mutant(
                file=self.file,
                function=".".join(self.scope),
                line=node.lineno,
                text=self.lines[node.lineno - 1].decode().strip(),
                kind=kind,
                start=start,
                end=end,
                old=self.data[start:end].decode(),
                new=new,
            )
        )

    # -- what is changed -------------------------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = ARITHMETIC.get(type(node.op))
        text = any(isinstance(side, ast.JoinedStr | ast.List) or _is_text(side) for side in (node.left, node.right))
        if other is not None and not text:
            self._add(node, "arithmetic", f"({ast.unparse(ast.BinOp(node.left, other(), node.right))})")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "statement dropped", "pass")
        self.visit(node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub) and not isinstance(node.operand, ast.Constant):
            self._add(node, "sign or not dropped", f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, op in enumerate(node.ops):
            ops = [*node.ops[:place], COMPARISON[type(op)](), *node.ops[place + 1 :]]
            self._add(node, "comparison", f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        self._add(node, "and, or", f"({ast.unparse(ast.BoolOp(other, node.values))})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, "constant", str(not value))
        elif isinstance(value, int):
            self._add(node, "constant", str(value + 1))
            self._add(node, "constant", f"({value - 1})")
        elif isinstance(value, float):
            self._add(node, "constant", repr(value * 2 or 1.0))

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test)
        self.generic_visit(node)

    def _condition(self, test: ast.expr) -> None:
        """Negated, unless another operator does the same."""
        same = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], OPPOSITE)
        if not same and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self._add(test, "condition negated", f"(not ({ast.unparse(test)}))")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            returns, value = self.returns[-1], ast.unparse(node.value)
            if returns == "bool":
                self._condition(node.value)
            elif returns in ("int", "float"):
                self._add(node.value, "return value", f"({value}) + 1")
            elif returns.endswith("| None"):
                self._add(node.value, "return value", "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call):
            self.generic_visit(node)
        elif _name(node.value) not in QUIET:
            self._add(node, "statement dropped", "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self.depth and all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add(node, "statement dropped", "pass")
        self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "loop", "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "loop", "continue")

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node)
        if name in QUIET:
            return
        for kind, changed in _changed_calls(node, name):
            self._add(node, kind, ast.unparse(changed))
        self.visit(node.func)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg not in IDLE_KEYWORDS:
                self.visit(keyword.value)


def _changed_calls(node: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
    """The calls that may stand in this one's place."""
    func, args, keywords = node.func, node.args, node.keywords
    if name in CALLED:
        other = ast.Attribute(func.value, CALLED[name]) if isinstance(func, ast.Attribute) else ast.Name(CALLED[name])
        yield "called by another name", ast.Call(other, args, keywords)
    if name in REMOVED and isinstance(func, ast.Attribute) and not _is_library(func.value):
        yield "call removed", func.value
    if name not in SYMMETRIC:
        for place in range(len(args) - 1):
            pair = args[place : place + 2]
            differ = ast.unparse(pair[0]) != ast.unparse(pair[1])
            if differ and all(isinstance(a, ast.Name | ast.Attribute | ast.Subscript | ast.Call) for a in pair):
                swapped = [*args[:place], *pair[::-1], *args[place + 2 :]]
                yield "arguments swapped", ast.Call(func, swapped, keywords)
    for place, keyword in enumerate(keywords):
        if keyword.arg is not None and keyword.arg not in IDLE_KEYWORDS:
            yield "keyword dropped", ast.Call(func, args, [*keywords[:place], *keywords[place + 1 :]])


def _name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_library(node: ast.expr) -> bool:
    """`torch.exp(x)` is no method of x."""
    return isinstance(node, ast.Name) and node.id in ("torch", "F", "math", "np", "copy")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    return body[1:] if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else body
