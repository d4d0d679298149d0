import pytest
import torch
from torch import nn

from spacy_elmo.bilm import kernels
from spacy_elmo.bilm.kernels import linear, matmul, multiply, pack

has_onednn = hasattr(torch.ops.mkldnn, "_linear_pointwise")
choose = kernels.has_fast_onednn.__wrapped__  # without the cache


@pytest.fixture(params=["MKL", "oneDNN"], autouse=True)
def library(request, monkeypatch):
    """Each library, whichever is faster here."""
    if request.param == "oneDNN" and not has_onednn:
        pytest.skip("no oneDNN in this PyTorch")
    use_onednn = request.param == "oneDNN"
    monkeypatch.setattr(kernels, "has_fast_onednn", lambda: use_onednn)


@pytest.mark.parametrize(
    "name, has_avx512, wanted",
    [("AMD EPYC", True, has_onednn), ("AMD EPYC", False, False),
     ("Intel(R) Xeon(R)", True, False), ("", None, False)],
)  # fmt: skip
def test_onednn_multiplies_where_mkl_leaves_avx512_unused(
    name, has_avx512, wanted, monkeypatch
):
    found = {"cpu_name": name, "avx512_f": has_avx512}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    assert choose() == bool(wanted)


@pytest.mark.parametrize("n", [0, 1, 2, 33])
def test_matmul_takes_matrices_and_their_transposes(n):
    x, w = torch.randn(n, 20), torch.randn(20, 48)
    for a in (x, x.t().contiguous().t()):
        for b in (w, w.t().contiguous().t()):
            torch.testing.assert_close(matmul(a, b), x @ w)


def test_matmul_writes_where_it_is_told():
    x, w = torch.randn(5, 20), torch.randn(20, 48)
    out = torch.zeros(7, 48)
    y = matmul(x, w, out=out[1:6])
    torch.testing.assert_close(out[1:6], x @ w)
    assert y.data_ptr() == out[1:6].data_ptr()
    assert not out[0].any() and not out[6].any()


def test_matmul_keeps_other_dtypes():
    x, w = torch.randn(5, 20).bfloat16(), torch.randn(20, 48).bfloat16()
    assert matmul(x, w).dtype == torch.bfloat16
    torch.testing.assert_close(matmul(x.double(), w.double()), x.double() @ w.double())


def test_linear_is_the_layer_with_its_gradient():
    layer, x = nn.Linear(20, 48), torch.randn(33, 20, requires_grad=True)
    dy = torch.randn(33, 48)
    found = []
    for function in (layer, lambda x: linear(layer, x)):
        y = function(x)
        params = [x, layer.weight, layer.bias]
        found.append([y.detach(), *torch.autograd.grad(y, params, dy)])
    for wanted, mine in zip(*found):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)


def test_linear_takes_part_in_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(nn.Linear(20, 48), torch.randn(33, 20)).dtype == torch.bfloat16


@pytest.mark.skipif(not has_onednn, reason="no oneDNN in this PyTorch")
@pytest.mark.parametrize("n", [1, 2, 33])
def test_a_packed_weight_multiplies_as_a_plain_one(n):
    x, w = torch.randn(n, 20), torch.randn(20, 48)
    bias, y = torch.randn(48), torch.randn(n, 48)
    weight = pack(w)
    torch.testing.assert_close(multiply(x, weight), x @ w)
    torch.testing.assert_close(multiply(x, weight, bias), x @ w + bias)
    torch.testing.assert_close(multiply(x, weight, y.clone()), x @ w + y)
