"""Which names a cell takes from its notebook, and which it makes itself.

Reads the cell's syntax only: nothing is run and no value is looked at. Errs on the side of
bringing a name along; a name is left out only when the cell surely binds it first.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

Transform = Callable[[str], str]
"""IPython's translation of its syntax into Python."""

_IDENTIFIER = re.compile(r"(?<![\w.])[^\W\d]\w*")
_EXPANDED = re.compile(r"\$(\w+)|\{([^{}]*)\}")
_MAGIC_OPTIONS = re.compile(r"^\s*(?:-(?:[nrpstf]\s*\S+|[^\s]+)\s+|-\w+$)+")
_RUN_PYTHON = frozenset({"time", "timeit", "prun", "capture", "memit", "mprun", "lprun"})
_BIND_NOTHING = frozenset({"!", "autoreload", "cd", "env", "load_ext", "matplotlib", "pip", "set_env"})
_COMPREHENSIONS = frozenset({"listcomp", "setcomp", "dictcomp", "genexpr"})


@dataclass(frozen=True)
class Magic:
    """One magic or shell line in the cell; ``line`` counts from 1, ``body`` is that of a cell magic."""

    name: str
    argument: str
    body: str | None
    line: int


@dataclass
class CellNames:
    """What was found. Names are in order of first use.

    hard       used before the cell can have bound them: the job needs them.
    soft       perhaps used, or perhaps bound first: useful where they can travel.
    bound      names that the cell may bind at its top level.
    needed     those of ``hard`` that the cell reads as it runs, whatever way it takes.
    any_bound  the cell may bind names that cannot be told (``from x import *``, ``exec``).
    """

    hard: list[str] = field(default_factory=list)
    soft: list[str] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    any_bound: bool = False
    needed: list[str] = field(default_factory=list)
    magics: list[Magic] = field(default_factory=list)


@dataclass
class _Uses:
    """Names in one statement: used when it runs, used later (in function bodies), bound, perhaps either."""

    now: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    binds: set[str] = field(default_factory=set)
    perhaps: list[str] = field(default_factory=list)
    may_bind: set[str] = field(default_factory=set)


def read(python: str, transform: Transform) -> CellNames:
    """Analyse a cell that has been transformed to Python. Raises ``SyntaxError``."""
    tree = ast.parse(python)
    reader = _Reader()
    reader.block(tree.body, set())
    found = reader.found()
    for magic in _magics(tree):
        _add_magic(found, magic, transform)
    found.soft = [name for name in dict.fromkeys(found.soft) if name not in found.hard]
    if all(magic.name in _BIND_NOTHING | _RUN_PYTHON for magic in found.magics):
        found.needed = [name for name in found.hard if name in _read_at_once(tree.body)]
    return found


def _read_at_once(statements: Iterable[ast.stmt]) -> set[str]:
    """Names that statements read when they run; what may not run at all is left out."""
    names: set[str] = set()
    for node in statements:
        if isinstance(node, (ast.With, ast.AsyncWith, ast.For, ast.AsyncFor)):
            heads = [node.iter] if isinstance(node, (ast.For, ast.AsyncFor)) else [i.context_expr for i in node.items]
            names |= _read_at_once([*map(ast.Expr, heads), *node.body])
        elif isinstance(node, (ast.Raise, ast.Break, ast.Continue)):
            break
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Assert, ast.Delete)):
            names |= set(_uses(node).now)
    return names


class _Reader:
    """Walks statements in order with the set of names that are surely bound (None: never reached)."""

    def __init__(self) -> None:
        self.hard: dict[str, None] = {}
        self.soft: dict[str, None] = {}
        self.later: dict[str, None] = {}
        self.bound: set[str] = set()
        self.any_bound = False

    def found(self) -> CellNames:
        for name in self.later:
            (self.soft if name in self.bound or self.any_bound else self.hard)[name] = None
        return CellNames(list(self.hard), list(self.soft), self.bound, self.any_bound)

    def block(self, statements: Iterable[ast.stmt], bound: set[str]) -> set[str] | None:
        after: set[str] | None = set(bound)
        for statement in statements:
            if after is None:
                return None
            after = self.statement(statement, after)
        return after

    def statement(self, node: ast.stmt, bound: set[str]) -> set[str] | None:
        if isinstance(node, ast.If):
            before = self.take(node.test, bound)
            return _meet(self.block(node.body, before), self.block(node.orelse, before))
        if isinstance(node, ast.While):
            return self.loop(node, self.take(node.test, bound), set())
        if isinstance(node, (ast.For, ast.AsyncFor)):
            before = self.take(node.iter, bound)
            return self.loop(node, before, self.take(_assignment(node.target), before))
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return self.block(node.body, self.with_items(node.items, bound))
        if isinstance(node, ast.Match):
            return self.match(node, bound)
        if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            return self.try_block(node, bound)  # type: ignore[arg-type]
        return self.simple(node, bound)

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, before: set[str], target: set[str]) -> set[str]:
        self.block(node.body, before | target)
        self.block(node.orelse, before)
        return before

    def with_items(self, items: list[ast.withitem], bound: set[str]) -> set[str]:
        for item in items:
            bound = self.take(item.context_expr, bound)
            if item.optional_vars is not None:
                bound = self.take(_assignment(item.optional_vars), bound)
        return bound

    def match(self, node: ast.Match, bound: set[str]) -> set[str]:
        before = self.take(node.subject, bound)
        for case in node.cases:
            head = ast.Match(subject=ast.Constant(0), cases=[ast.match_case(case.pattern, case.guard, [ast.Pass()])])
            self.block(case.body, self.take(head, before))
        return before

    def try_block(self, node: ast.Try, bound: set[str]) -> set[str] | None:
        ran = self.block(node.body, bound)
        after = None if ran is None else self.block(node.orelse, ran)
        for handler in node.handlers:
            before = self.take(handler.type, bound) if handler.type else bound
            name = {handler.name} if handler.name else set()
            self.bound |= name
            handled = self.block(handler.body, before | name)
            after = _meet(after, None if handled is None else handled - name)
        if not node.finalbody:
            return after
        finally_bound = self.block(node.finalbody, bound)
        return None if finally_bound is None or after is None else after | finally_bound

    def simple(self, node: ast.stmt, bound: set[str]) -> set[str] | None:
        if isinstance(node, (ast.Raise, ast.Break, ast.Continue)):
            self.take(node, bound) if isinstance(node, ast.Raise) else None
            return None
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            self.any_bound = True
            return bound
        if isinstance(node, ast.AnnAssign) and node.value is None:
            self.take(node.annotation, bound)
            return bound
        if isinstance(node, ast.Delete):
            loads = [ast.Expr(_loading(target)) for target in node.targets]
            for load in loads:
                self.take(load, bound)
            return bound - {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.take(_loading(node.target), bound)
        return self.take(node, bound)

    def take(self, node: ast.stmt | ast.expr, bound: set[str]) -> set[str]:
        """Note the names of one statement or expression; returns what is surely bound after it."""
        uses = _uses(ast.Expr(node) if isinstance(node, ast.expr) else node)
        self.any_bound |= "exec" in uses.now
        for name in uses.now:
            if name not in bound:
                unsure = name in self.bound or self.any_bound or name in uses.perhaps
                (self.soft if unsure else self.hard)[name] = None
        self.soft.update((name, None) for name in uses.perhaps if name not in bound)
        self.later.update((name, None) for name in uses.later if name not in bound | uses.binds)
        self.bound |= uses.binds | uses.may_bind
        return bound | uses.binds


def _meet(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    """What is surely bound where two paths join; a path that never gets there does not count."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _assignment(target: ast.expr) -> ast.stmt:
    return ast.Assign(targets=[target], value=ast.Constant(0), lineno=1)


def _loading(target: ast.expr) -> ast.expr:
    """The same place, read instead of written (an expression of our own: the tree stays as it is)."""
    return ast.parse(ast.unparse(target), mode="eval").body


def _uses(node: ast.stmt) -> _Uses:
    """The names of one statement by Python's own rules of scope."""
    try:
        text = ast.unparse(ast.Module(body=[node], type_ignores=[]))
        table = symtable.symtable(text, "<cell>", "exec")
    except (ValueError, RecursionError, SyntaxError):  # what unparse cannot write again: every name may be used
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        return _Uses(perhaps=names, may_bind=set(names))
    uses = _Uses()
    for symbol in table.get_symbols():
        if symbol.is_referenced():
            uses.now.append(symbol.get_name())
        if symbol.is_assigned() or symbol.is_imported():
            uses.binds.add(symbol.get_name())
    walrus = {part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr)}
    unordered = walrus | (uses.binds if isinstance(node, ast.Match) else set())  # bound and read within the statement
    uses.perhaps += [name for name in uses.now if name in unordered]
    _forget_comprehension_variables(node, uses)
    for child in table.get_children():
        _scope(child, uses, deferred=False)
    return uses


def _forget_comprehension_variables(node: ast.stmt, uses: _Uses) -> None:
    """Since Python 3.12 the scope around a comprehension seems to own its variables; it does not."""
    comprehensions = [part for part in ast.walk(node) if isinstance(part, ast.comprehension)]
    inner = {name.id for c in comprehensions for name in ast.walk(c.target) if isinstance(name, ast.Name)}
    if inner:
        outside = list(_names_outside_comprehensions(node))
        read_outside = {name.id for name in outside if isinstance(name.ctx, ast.Load)}
        bound_outside = {name.id for name in outside if not isinstance(name.ctx, ast.Load)}
        uses.now = [name for name in uses.now if name not in inner or name in read_outside]
        uses.binds -= inner - bound_outside


def _names_outside_comprehensions(node: ast.AST) -> Iterator[ast.Name]:
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        yield from _names_outside_comprehensions(node.generators[0].iter)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _names_outside_comprehensions(child)


def _scope(table: symtable.SymbolTable, uses: _Uses, *, deferred: bool) -> None:
    is_class = str(table.get_type()).rpartition(".")[2].lower() == "class"
    deferred = deferred or not (is_class or table.get_name() in _COMPREHENSIONS)
    for symbol in table.get_symbols():
        name = symbol.get_name()
        if symbol.is_global() and symbol.is_referenced():
            (uses.later if deferred else uses.now).append(name)
        elif symbol.is_global() or (is_class and symbol.is_referenced() and symbol.is_assigned()):
            uses.perhaps.append(name)
        if symbol.is_global() and symbol.is_assigned():
            uses.may_bind.add(name)
    for child in table.get_children():
        _scope(child, uses, deferred=deferred)


def _magics(tree: ast.AST) -> Iterator[Magic]:
    """The calls that IPython puts in the place of magics and ``!`` lines."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _of_ipython(node.func.value)):
            continue
        texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if len(texts) != len(node.args) or not texts or not all(isinstance(text, str) for text in texts):
            continue
        if node.func.attr in ("run_line_magic", "run_cell_magic") and len(texts) >= 2:
            body = texts[2] if len(texts) > 2 else None
            yield Magic(str(texts[0]), str(texts[1]), None if body is None else str(body), node.lineno)
        elif node.func.attr in ("system", "getoutput"):
            yield Magic("!", str(texts[0]), None, node.lineno)


def _of_ipython(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_ipython"


def _add_magic(found: CellNames, magic: Magic, transform: Transform) -> None:
    """Note what a magic may use and bind; inner magics are listed too, at their line of the cell."""
    found.magics.append(magic)
    found.soft += _expanded(magic.argument)
    if magic.name == "!":
        return
    if magic.name not in _RUN_PYTHON:
        found.bound |= set(_IDENTIFIER.findall(magic.argument))
        return
    statement = _MAGIC_OPTIONS.sub("", magic.argument)
    if magic.name == "capture":
        _bound_by_magic(found, set(_IDENTIFIER.findall(statement)))
    else:
        _add_inner(found, statement, magic.line - 1, transform)
    if magic.body is not None:
        _add_inner(found, magic.body, magic.line, transform)


def _add_inner(found: CellNames, text: str, lines_before: int, transform: Transform) -> None:
    """Python that a magic runs: what it uses may be needed, what it binds may be there afterwards."""
    try:
        inner = read(transform(text), transform)
    except SyntaxError:  # the magic itself will say so when it runs
        found.soft += _IDENTIFIER.findall(text)
        return
    found.soft += inner.hard + inner.soft
    found.any_bound |= inner.any_bound
    found.magics += [Magic(m.name, m.argument, m.body, m.line + lines_before) for m in inner.magics]
    _bound_by_magic(found, inner.bound)


def _bound_by_magic(found: CellNames, names: set[str]) -> None:
    found.bound |= names
    found.soft += [name for name in found.hard if name in names]
    found.hard = [name for name in found.hard if name not in names]


def _expanded(text: str) -> list[str]:
    """Names that IPython puts into the line: ``$name`` and ``{expression}``."""
    names: list[str] = []
    for name, expression in _EXPANDED.findall(text):
        names += [name] if name else _IDENTIFIER.findall(expression)
    return names
