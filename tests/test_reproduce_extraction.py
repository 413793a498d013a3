"""Features of a layer of a PyTorch module, streamed to disk."""

import numpy as np
import pytest

from randkern_lab.papers.extraction import (
    _CHANNEL_MEAN,
    _CHANNEL_STD,
    PAPER_LAYERS,
    extract_features,
    load_network,
)

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow


@pytest.fixture
def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(5),
    )


@pytest.fixture
def images(rng):
    return rng.random((10, 9, 9, 3), dtype=np.float32)


def test_features_are_the_outputs_of_the_layer(network, images, tmp_path):
    pixels = (images - np.array(_CHANNEL_MEAN)) / np.array(_CHANNEL_STD)
    batch = torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32))
    with torch.no_grad():
        expected = network[:2](batch).numpy().reshape(10, -1)
    path = tmp_path / "f.npy"
    result = extract_features(network, "1", images, path, batch_size=4)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["f.npy"]


def test_images_are_brought_to_the_size(network, images, tmp_path):
    result = extract_features(network, "0", images, tmp_path / "f.npy", image_size=17)
    assert result.shape == (10, 4 * 8 * 8)


def test_hooks_are_removed(network, images, tmp_path):
    extract_features(network, "1", images, tmp_path / "f.npy")
    assert not network[1]._forward_hooks


def test_what_follows_does_not_overwrite_the_output(images, tmp_path):
    torch.manual_seed(0)
    relu = torch.nn.ReLU(inplace=True)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), relu)
    assert extract_features(network, "0", images, tmp_path / "f.npy").min() < 0


def test_layers_count_before_images_are_too_small(images, tmp_path):
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.MaxPool2d(50))
    result = extract_features(network, "0", images, tmp_path / "f.npy")
    assert result.shape == (10, 4 * 7 * 7)


def test_of_several_calls_the_first_counts(images, tmp_path):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = torch.nn.MaxPool2d(3)

        def forward(self, x):
            return self.pool(self.pool(x))

    result = extract_features(Twice(), "pool", images, tmp_path / "f.npy", batch_size=4)
    assert result.shape == (10, 3 * 3 * 3)


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (lambda x: (x, x), "tuple"),
        (lambda x: x[:-1], r"torch.Size\(\[9, 3, 9, 9\]\)"),
        (lambda x: x.sum(), r"torch.Size\(\[\]\)"),
    ],
)
def test_outputs_must_have_a_row_an_image(output, kind, images, tmp_path):
    class Layer(torch.nn.Module):
        def forward(self, x):
            return output(x)

    network = torch.nn.Sequential(Layer())
    with pytest.raises(ValueError, match=f"tensor with a row an image, got {kind}"):
        extract_features(network, "0", images, tmp_path / "f.npy")
    assert not network[0]._forward_hooks


def test_batches_have_images(network, images, tmp_path):
    with pytest.raises(ValueError, match="batch_size must be a positive integer"):
        extract_features(network, "0", images, tmp_path / "f.npy", batch_size=0)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        ("9", (2, 9, 9, 3), "has no layer '9'; it has 0, 1, 2, 3"),
        ("", (2, 9, 9, 3), "has no layer ''"),
        ("1", (2, 9, 9), r"images must have shape \(n, height, width, 3\)"),
        ("1", (0, 9, 9, 3), r"images must have shape"),
    ],
)
def test_bad_input_is_named(layer, shape, message, network, tmp_path):
    with pytest.raises(ValueError, match=message):
        extract_features(network, layer, np.zeros(shape), tmp_path / "f.npy")


def test_layers_that_are_not_used_are_named(images, tmp_path):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = torch.nn.Flatten(), torch.nn.Flatten()

        def forward(self, x):
            return self.used(x)

    with pytest.raises(ValueError, match="does not use its layer 'unused'"):
        extract_features(Two(), "unused", images, tmp_path / "f.npy")


@pytest.mark.parametrize("paper", PAPER_LAYERS, ids=lambda p: p.architecture + p.layer)
def test_layers_of_the_table_have_its_dimensions(paper, tmp_path):
    pytest.importorskip("torchvision")
    from randkern_lab.papers.published import published_rows

    dimension = next(
        row["dimension"]
        for row in published_rows("cifar10-transfer-learning")
        if (row["architecture"], row["layer"]) == (paper.architecture, paper.layer)
    )
    module = load_network(paper.network, pretrained=False)
    images = np.zeros((1, 32, 32, 3), dtype=np.float32)
    result = extract_features(
        *(module, paper.module, images, tmp_path / "f.npy"), image_size=paper.image_size
    )
    assert result.shape == (1, dimension)
