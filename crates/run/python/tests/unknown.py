"""What tests of values that nobody knows begin with. There is no device here: tensors of the CPU stand for it."""

import unittest
from unittest import mock


class Phantom(unittest.TestCase):
    """Every tensor is one of a device, and nothing is known of any."""

    def setUp(self):
        import torch
        from tonnage_rehearse import caveats
        from tonnage_rehearse.values import known

        self.torch, self.known = torch, known
        for patch in (
            mock.patch.object(caveats, "_told", {}),
            mock.patch.object(known, "is_plain", lambda tensor: isinstance(tensor, torch.Tensor)),
            mock.patch.dict(known.Values.by_id, clear=True),
        ):
            patch.start()
            self.addCleanup(patch.stop)
