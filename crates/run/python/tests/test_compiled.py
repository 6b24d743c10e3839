"""What a compiled graph chose, as far as its caller is handed it."""

from . import needs_torch
from .unknown import Phantom


@needs_torch
class Chosen(Phantom):
    def setUp(self):
        super().setUp()
        from tonnage_rehearse.values import compiled

        self.compiled = compiled

    def run_graph(self, function, *inputs, sizes):
        """The results of a function as Dynamo would record it; `sizes`: of its nodes, by what they call."""
        graph = self.torch.fx.symbolic_trace(function)
        for node, value in zip((node for node in graph.graph.nodes if node.op != "output"), sizes, strict=True):
            node.meta["example_value"] = value
        followed = self.compiled.Graph(graph)
        return followed.following(graph)(*inputs)

    def test_experts_that_a_graph_chose_have_an_even_share(self):
        torch = self.torch

        def route(logits):
            best = logits.topk(2)
            flat = best[1].view(-1)
            return logits, flat, flat.argsort()

        logits, whole = torch.randn(16, 8), torch.zeros(32, dtype=torch.long)
        pair = torch.randn(16, 8).topk(2)
        _, flat, order = self.run_graph(route, logits, sizes=[logits, pair, pair[1], whole, whole])
        flat, order = self.known.of(flat), self.known.of(order)
        self.assertEqual(flat.certainty, self.known.Certainty.CHOSEN)
        self.assertEqual(torch.bincount(flat.value).tolist(), [4] * 8)
        self.assertTrue((flat.value[order.value].diff() >= 0).all(), "sorted by what was chosen, not by another choice")

    def test_what_follows_from_a_known_argument_is_known(self):
        torch, labels = self.torch, self.torch.tensor([3, -100, 4])
        self.known.give(labels, labels.clone(), self.known.Certainty.WRITTEN)
        mask, _ = self.run_graph(lambda labels, x: (labels != -100, x), labels, torch.zeros(3), sizes=[labels, torch.zeros(3), labels != 0])
        self.assertEqual((self.known.of(mask).value.tolist(), self.known.of(mask).certainty), ([True, False, True], self.known.Certainty.WRITTEN))

    def test_what_goes_by_fractions_is_not_known(self):
        torch, x = self.torch, self.torch.zeros(3)
        mask, _ = self.run_graph(lambda x: (x > 0.5, x), x, sizes=[x, torch.zeros(3).bool()])
        self.assertIsNone(self.known.of(mask))
