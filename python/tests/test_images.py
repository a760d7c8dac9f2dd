"""Images: pixels as they should be, and the same for a sample wherever it is decoded."""

import io

import numpy as np
import pytest
from PIL import Image

import feedline
import shards
from conftest import rows_of

COUNT = 60


def drawn(number):
    """A 40 x 32 image whose colours encode its number, and differ left and right."""
    pixels = np.zeros((32, 40, 3), np.uint8)
    pixels[:, :20] = number
    pixels[:, 20:] = 255 - number
    return pixels


def encoded(pixels, kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    files = [encoded(drawn(number)) for number in range(COUNT)]
    return shards.write_images(tmp_path_factory.mktemp("images"), files, np.arange(COUNT) % 7, classes=7, shards=2)


def by_row(batches):
    """Copies of the pixels by row number."""
    return {int(row): image.copy() for batch in batches for row, image in zip(batch.origin, batch.image)}


def test_pixels_are_those_of_the_file(images):
    settings = {"height": 32, "width": 40, "crop": {"kind": "whole"}}
    for batch in feedline.Loader(images, 16, images=settings):
        image, y = batch
        assert (image.dtype, image.shape[1:]) == (np.uint8, (32, 40, 3)) and image.flags.c_contiguous
        for row, pixels, label in zip(batch.origin, image, y):
            assert (pixels == drawn(int(row))).all() and label == row % 7


def test_augmentations_have_the_keys_and_defaults_of_a_pipeline(images):
    settings = {"height": 32, "width": 40, "crop": {"type": "whole"}}
    always = {**settings, "augment": [{"type": "horizontal_flip", "probability": 1}]}
    for batch in feedline.Loader(images, 16, images=always):
        for row, pixels in zip(batch.origin, batch.image):
            assert (pixels == drawn(int(row))[:, ::-1]).all()
    plain, half = (by_row(feedline.Loader(images, 16, images={**settings, **more}))
                   for more in ({}, {"augment": [{"type": "horizontal_flip"}]}))
    mirrored = sum((half[row] != plain[row]).any() for row in plain)
    assert 0 < mirrored < len(plain)
    cropped = {"height": 8, "width": 8, "augment": [{"type": "random_resized_crop"}, {"kind": "cutout", "side": 2}]}
    assert len(by_row(feedline.Loader(images, 16, images=cropped))) == COUNT
    feedline.Loader(images, 16, images={**settings, "mix": {"mixup": 0.5}})


def test_an_error_in_settings_of_images_names_the_key(images):
    size = {"height": 8, "width": 8}
    for wrong, text in (
        ({"augment": [{"type": "rotate"}]}, "`images.augment[0]`: missing field `degrees`"),
        ({"augment": [{"type": "horizontal_flip"}, {"degrees": 5}]}, "`images.augment[1]`: it has no `type`"),
        ({"crop": {"type": "middle"}}, "`images.crop`: unknown variant `middle`"),
        ({"flop": 1}, "`images`: unknown field `flop`"),
    ):
        with pytest.raises(feedline.ConfigError) as caught:
            feedline.Loader(images, 16, images={**size, **wrong})
        assert text in str(caught.value) and "line" not in str(caught.value).replace("feedline", "")


def test_training_crops_and_mirrors_and_evaluation_does_not(images):
    size = {"height": 8, "width": 8}
    loader = feedline.Loader(images, 16, images=size)
    first, second = by_row(loader), by_row(loader)
    assert len(first) == len(second) == COUNT
    assert any((first[row] != second[row]).any() for row in range(COUNT)), "another epoch, other crops"
    mirrored = sum(int(image[0, 0, 0]) > int(image[0, -1, 0]) for row, image in first.items() if row < 40)
    assert 0 < mirrored < 40
    evaluation = feedline.Loader(images, 16, images=size, shuffle=False)
    assert all((a == b).all() for a, b in zip(by_row(evaluation).values(), by_row(evaluation).values()))


def test_a_sample_looks_the_same_on_any_rank_and_after_resuming(images):
    settings = {"images": {"height": 12, "width": 12}, "global_batch_size": 12, "seed": 4}
    whole = by_row(feedline.Loader(images, **settings))
    parts = [feedline.Loader(images, rank=rank, world_size=3, threads=1, **settings) for rank in range(3)]
    shared = {row: image for part in parts for row, image in by_row(part).items()}
    begun = feedline.Loader(images, **settings)
    next(iter(begun))
    resumed = feedline.Loader(images, **settings)
    resumed.load_state_dict(begun.state_dict())
    rest = by_row(resumed)
    assert len(rest) == COUNT - 12 and shared.keys() == whole.keys()
    assert all((shared[row] == whole[row]).all() for row in whole)
    assert all((rest[row] == whole[row]).all() for row in rest)


def test_settings_of_images_are_checked(images):
    with pytest.raises(feedline.ConfigError, match="image.height"):
        feedline.Loader(images, 8, images={"height": 0, "width": 8})
    with pytest.raises(feedline.ConfigError, match="unknown field `hieght`"):
        feedline.Loader(images, 8, images={"hieght": 8, "height": 8, "width": 8})
    with pytest.raises(feedline.ConfigError, match="images"):
        feedline.Loader(images, 8)


def test_transparent_pixels_are_blended_onto_the_background(tmp_path):
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[..., 3] = np.arange(64).reshape(8, 8) * 4
    # The dataset was built without `[dataset.image]`.
    shards.write_images(tmp_path, [encoded(pixels)] * COUNT)
    whole = {"height": 8, "width": 8, "crop": {"kind": "whole"}}

    def first(settings):
        batches = iter(feedline.Loader(tmp_path, 20, images={**whole, **settings}))
        return next(batches).image[0].copy()

    assert (first({}) == 0).all() and (first({"background": "black"}) == 0).all()
    assert (first({"background": "white"}) == 255 - pixels[..., 3:]).all()
    red = first({"background": "#ff0000"})
    assert (red[..., :1] == 255 - pixels[..., 3:]).all() and (red[..., 1:] == 0).all()
    with pytest.raises(feedline.ConfigError, match="images.background.*`grey` is not a background"):
        feedline.Loader(tmp_path, 20, images={**whole, "background": "grey"})


def test_a_damaged_image_is_replaced_and_told(tmp_path):
    files = [encoded(drawn(number)) for number in range(COUNT)]
    files[17] = files[17][:40]
    shards.write_images(tmp_path, files)
    size = {"height": 8, "width": 8}
    loader = feedline.Loader(tmp_path, 20, images=size, max_bad_fraction=0.1)
    with pytest.warns(UserWarning, match="another one is given in its place: row `.*` with key `"):
        batches = [(batch.origin.copy(), batch.substituted) for batch in loader]
    rows = np.concatenate([rows for rows, _ in batches])
    assert len(rows) == COUNT and 17 not in rows
    assert sum(len(stand_ins) for _, stand_ins in batches) == 1 == len(loader.quarantine())
    assert loader.metrics()["substituted"] == 1 == loader.metrics()["quarantined"]
    assert loader.quarantined_keys() == [2**64 - 1 - 17]
    with pytest.raises(feedline.Error):
        rows_of(feedline.Loader(tmp_path, 20, images=size, max_bad_fraction=0.0))


def test_an_image_over_a_limit_is_replaced_and_named(tmp_path):
    files = [encoded(drawn(number)) for number in range(COUNT)]
    files[17] = encoded(np.zeros((40, 50, 3), np.uint8))
    shards.write_images(tmp_path, files)
    settings = {"height": 8, "width": 8, "limits": {"pixels": 40 * 32}}
    loader = feedline.Loader(tmp_path, 20, images=settings, max_bad_fraction=0.1)
    text = "`2000` pixels and the limit is `1280`; make it smaller, or raise `images.limits.pixels`"
    with pytest.warns(UserWarning, match=text):
        rows_of(loader)
    assert loader.metrics()["substituted"] == 1 and "00000.arrow" in loader.quarantine()[0]
    with pytest.raises(feedline.DataError, match=text):
        rows_of(feedline.Loader(tmp_path, 20, images=settings, max_bad_fraction=0.0))


def test_mixed_images_come_with_both_targets(images):
    settings = {"height": 32, "width": 40, "crop": {"kind": "whole"}}
    mixed = feedline.Loader(images, 16, images={**settings, "mix": {"mixup_probability": 0.5, "cutmix_probability": 0.5}})
    plain = feedline.Loader(images, 16, images=settings)
    changed = 0
    for batch, unmixed in zip(mixed, plain):
        assert "lam" not in unmixed and (batch.y == unmixed.y).all()
        assert batch.lam.dtype == np.float32 and batch.y_partner.dtype == batch.y.dtype
        for i, lam in enumerate(batch.lam):
            own, other = unmixed.image[i].astype(float), unmixed.image[i ^ 1].astype(float)
            assert batch.y_partner[i] == unmixed.y[i ^ 1 if lam < 1 else i]
            blended = np.abs(batch.image[i] - (lam * own + (1 - lam) * other)).max() < 0.51
            cut = ((batch.image[i] == own) | (batch.image[i] == other)).all()
            assert blended or cut
            changed += bool((batch.image[i] != own).any())
    assert changed > 20
    with pytest.raises(feedline.ConfigError, match="blend"):
        feedline.Loader(images, 16, images={**settings, "mix": {"blend": 0.5}})
