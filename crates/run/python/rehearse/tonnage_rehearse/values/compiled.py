"""What compiled code chose (experts, tokens) or compared, as far as its caller is handed it: a graph of torch.compile runs out of sight, so the
part of it that leads to whole numbers and masks is computed once more, on values in the host's memory."""

import functools

from .. import imports
from . import choices, known
from .follow import Computing, Unknowable
from .known import Certainty

MOST_NODES = 400
"""Nodes that lead to one result at most."""
TRIES = 3
"""Calls in which a result was not known, after which nobody asks again."""


def install(_torch):
    """Once Dynamo is there."""
    imports.after("torch._dynamo.output_graph", _graphs)


def _graphs(module):
    compile_graph = getattr(module.OutputGraph, "call_user_compiler", None)
    if compile_graph is None:
        return

    @functools.wraps(compile_graph)
    def call_user_compiler(self, graph, *args, **kwargs):
        # A backend may change the graph.
        followed = Graph(graph) if known.Values.is_on else None
        compiled = compile_graph(self, graph, *args, **kwargs)
        return followed.following(compiled) if followed is not None and followed.wanted else compiled

    module.OutputGraph.call_user_compiler = call_user_compiler


class Graph:
    """The nodes of a graph that lead to whole numbers among its results."""

    def __init__(self, graph):
        nodes = list(graph.graph.nodes)
        self.places = {node.name: at for at, node in enumerate(node for node in nodes if node.op == "placeholder")}
        self.steps, self.wanted = {}, {}
        for at, node in enumerate(_results(nodes)):
            path = _path(node)
            if path is not None:
                self.wanted[at] = node.name
                self.steps |= {one.name: _step(one) for one in path}

    def following(self, compiled):
        """The compiled function, whose results get their values."""
        tries = dict.fromkeys(self.wanted, TRIES)

        @functools.wraps(compiled)
        def called(*args):
            outs = compiled(*args)
            if not isinstance(outs, (list, tuple)):
                return outs
            with Computing():
                made = {}
                for at, name in self.wanted.items():
                    if tries[at]:
                        tries[at] = TRIES if self._give(outs[at], name, args, made) else tries[at] - 1
            return outs

        return called

    def _give(self, out, name, args, made):
        try:
            value, certainty = self._value(name, args, made)
        except Exception:
            # Whatever cannot be computed is not known; the compiled function has been called.
            return False
        known.give(out, value, certainty)
        return True

    def _value(self, name, args, made):
        """The value of a node, and how certain it is."""
        if name not in made:
            made[name] = self._computed(name, args, made)
        return made[name]

    def _computed(self, name, args, made):
        if name in self.places:
            found = known.of(args[self.places[name]]) if hasattr(args[self.places[name]], "is_cuda") else None
            if found is None:
                raise Unknowable
            return found.value, found.certainty
        step = self.steps.get(name)
        if step is None:
            raise Unknowable
        try:
            certainties = [Certainty.WRITTEN]

            def value(one):
                got, certainty = self._value(one, args, made)
                certainties.append(certainty)
                return got

            inputs = _mapped(step.args, value), _mapped(step.kwargs, value)
            if step.is_computed(max(certainties)):
                return step.compute(*inputs), max(certainties)
        except Unknowable:
            if step.choice is None:
                raise
        return step.chosen(), Certainty.CHOSEN


class Step:
    """A node: what it calls, with names in place of other nodes; of a choice the sizes, which is all that it goes by."""

    def __init__(self, function, args, kwargs, choice):
        self.function, self.args, self.kwargs, self.choice = function, args, kwargs, choice

    def is_computed(self, certainty):
        """Whether values of this certainty decide it; what was chosen is sorted truly."""
        return self.choice is None or certainty < Certainty.CHOSEN or (certainty is Certainty.CHOSEN and self.choice[0] is choices.sorted_places)

    def compute(self, args, kwargs):
        return self.function(*args, **kwargs)

    def chosen(self):
        places, out, input, args, kwargs = self.choice
        found = next(iter(places(out, input, args, kwargs)), (None, None))[1]
        if found is None:
            raise Unknowable
        return (None, found) if isinstance(out, tuple) else found


class Name(str):
    """Another node."""


def _results(nodes):
    out = nodes[-1].args[0] if nodes and nodes[-1].op == "output" else ()
    return out if isinstance(out, (list, tuple)) else (out,)


def _path(node):
    """The nodes that lead to a result of whole numbers or truth values; None where it is no such result, or nobody could say."""
    if not _is_whole(node):
        return None
    seen, waiting = {}, [node]
    while waiting:
        one = waiting.pop()
        if one in seen or one.op == "placeholder":
            continue
        if one.op not in ("call_function", "call_method") or len(seen) > MOST_NODES:
            return None
        seen[one] = True
        # Of fractions a choice goes by the sizes alone.
        waiting.extend(input for input in one.all_input_nodes if _choice(one) is None or _is_whole(input))
    return list(seen)


def _is_whole(node):
    value = getattr(node, "meta", {}).get("example_value")
    dtype = getattr(value, "dtype", None)
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex


def _step(node):
    function = node.target if node.op == "call_function" else _method(node.target)
    args, kwargs = (_mapped_nodes(one) for one in (node.args, node.kwargs))
    return Step(function, args, kwargs, _choice(node))


def _method(name):
    return lambda self, *args, **kwargs: getattr(self, name)(*args, **kwargs)


def _choice(node):
    """The rule of a function that chooses, with tensors that have sizes alone; None for others."""
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    places = choices.CHOICES.get(name)
    if places is None or not node.args:
        return None
    out, input = node.meta.get("example_value"), getattr(node.args[0], "meta", {}).get("example_value")
    try:
        return places, _sized(out), _sized(input), node.args[1:], node.kwargs
    except (TypeError, AttributeError):
        return None


def _sized(value):
    """A tensor of the same size without memory."""
    if isinstance(value, (list, tuple)):
        return tuple(_sized(one) for one in value)
    return known._torch().empty([int(one) for one in value.shape], dtype=value.dtype, device="meta")


def _mapped_nodes(value):
    """Arguments with names in place of nodes and the host in place of a device."""
    torch = known._torch()
    if isinstance(value, torch.fx.Node):
        return Name(value.name)
    if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda")):
        return torch.device("cpu")
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped_nodes(one) for one in value) if type(value) in (list, tuple) else tuple(_mapped_nodes(one) for one in value)
    if isinstance(value, dict):
        return {key: _mapped_nodes(one) for key, one in value.items()}
    if isinstance(value, slice):
        return slice(*(_mapped_nodes(one) for one in (value.start, value.stop, value.step)))
    return value


def _mapped(value, of):
    """Arguments with values in place of names."""
    if isinstance(value, Name):
        return of(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(one, of) for one in value)
    if isinstance(value, dict):
        return {key: _mapped(one, of) for key, one in value.items()}
    if isinstance(value, slice):
        return slice(*(_mapped(one, of) for one in (value.start, value.stop, value.step)))
    return value
