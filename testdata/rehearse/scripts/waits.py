"""A loop that waits for a value of the device: it never comes."""

import torch

flag = torch.zeros(1, device="cuda")
while flag.item() < 1:
    flag += torch.rand(1, device="cuda")
