"""The functions of PyTorch whose results follow from the values of their arguments, by what they do. One more function is one
more name here. Those of `torch` and of `torch.Tensor` alike."""

_ARITHMETIC = """
add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow neg negative abs absolute sign square
sqrt exp log log2 floor ceil round trunc reciprocal clamp clip clamp_min clamp_max minimum maximum fmin fmax
bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift where masked_fill nan_to_num
__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__
__rpow__ __neg__ __abs__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __invert__ __lshift__ __rshift__
"""
_TYPES = """
long int short half float double bfloat16 bool byte
"""
_SHAPES = """
view reshape flatten unflatten ravel permute transpose swapaxes swapdims movedim moveaxis t squeeze unsqueeze expand expand_as
view_as reshape_as broadcast_to broadcast_tensors repeat tile cat concat concatenate stack hstack vstack split split_with_sizes
tensor_split chunk unbind narrow select index_select take gather take_along_dim roll flip tril triu diagonal diag contiguous
clone detach unfold atleast_1d atleast_2d meshgrid cartesian_prod
"""
_LISTS = """
cumsum cumprod cummax cummin diff searchsorted bucketize scatter scatter_add index_add index_fill index_copy
histc kthvalue msort isin outer index_put scatter_reduce rot90
"""
ELEMENTWISE = frozenset((_ARITHMETIC + _TYPES).split())
"""Every element follows from those at its place."""
FOLLOWED = frozenset((_ARITHMETIC + _TYPES + _SHAPES + _LISTS).split())
"""Computed where every tensor is known."""
TYPES = frozenset(_TYPES.split())
"""Give the same numbers as another type."""
CARRIED = TYPES | frozenset((_SHAPES + "to cpu __getitem__").split())
"""Only give what is known another form."""

FUNCTIONAL = frozenset(["pad"])
"""The same, of `torch.nn.functional`."""

REDUCED = frozenset(["all", "any", "max", "min", "amax", "amin", "sum", "prod", "mean", "count_nonzero", "aminmax", "_is_all_true", "_is_any_true"])
"""The same; of a uniform value one element says it."""

_COMPARISONS = """
eq ne lt le gt ge not_equal less less_equal greater greater_equal logical_not logical_and logical_or logical_xor isclose
__eq__ __ne__ __lt__ __le__ __gt__ __ge__
"""
COMPARED = frozenset(_COMPARISONS.split())
"""Always computed: what is not known is zero everywhere, and zero is no less than zero."""

PLACED = ELEMENTWISE | CARRIED | COMPARED
"""What they give of running sums says as these where they reach a share."""

_CHANGES = """
add_ sub_ mul_ div_ floor_divide_ remainder_ neg_ abs_ clamp_ clamp_min_ clamp_max_ masked_fill_ scatter_ scatter_add_ index_add_
index_fill_ index_copy_ index_put_ put_ logical_not_ logical_and_ logical_or_ eq_ ne_ lt_ le_ gt_ ge_ cumsum_ tril_ triu_
squeeze_ unsqueeze_ t_ transpose_ bitwise_and_ bitwise_or_ bitwise_xor_ bitwise_not_ logical_xor_
fill_diagonal_ masked_scatter_ pow_ sqrt_ exp_ log_ floor_ ceil_ round_ fmod_
__iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __iand__ __ior__ __ixor__
"""
IN_PLACE = frozenset(_CHANGES.split())
"""Change their first argument."""

ADDED = frozenset(["add", "sub", "__add__", "__radd__", "__sub__", "__rsub__", "exp", "add_", "__iadd__"])
"""Not zero of zero: of what nobody knows they give what they would give of that."""
