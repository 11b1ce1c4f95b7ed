#!/usr/bin/env python3
"""Writes the image files of this directory and vectors.txt: what PyPI pillow makes of them.  Usage: make_images.py

vectors.txt: `decode FILE WIDTH HEIGHT SHA256` (of the RGB bytes, Exif orientation applied) and
`resize FILE WIDTH HEIGHT SHA256` (of the bytes after resizing with BICUBIC, the rows first; left to itself pillow 13
picks the order by cost).
"""
import hashlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

HERE = Path(__file__).resolve().parent
RANDOM = np.random.default_rng(7)


def picture(width, height):
    """Slopes, edges and noise."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [4 * x % 256, (3 * y + x) % 256, np.where((x // 7 + y // 5) % 2, 230, 20)]
    pixels = np.stack(planes, axis=-1) + RANDOM.integers(-12, 13, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def save_all():
    photo = picture(61, 43)
    photo.save(HERE / "photo.jpg", quality=90)
    picture(48, 64).save(HERE / "progressive.jpg", quality=85, progressive=True)
    photo.convert("L").save(HERE / "grey.jpg", quality=80)
    photo.save(HERE / "full_chroma.jpg", quality=75, subsampling=0)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        picture(24, 16).save(HERE / f"orientation_{orientation}.jpg", quality=80, exif=exif)
    photo.save(HERE / "rgb.png")
    alpha = Image.fromarray(RANDOM.integers(0, 256, (43, 61), dtype=np.uint8))
    rgba = photo.copy()
    rgba.putalpha(alpha)
    rgba.save(HERE / "rgba.png")
    rgba.convert("LA").save(HERE / "grey_alpha.png")
    photo.convert("L").save(HERE / "grey.png")
    photo.convert("1").save(HERE / "bilevel.png")
    photo.quantize(13).save(HERE / "palette.png")
    picture(3, 200).save(HERE / "tall.png")
    picture(1, 1).save(HERE / "dot.png")


def main():
    save_all()
    lines = []
    for path in sorted(HERE.glob("*.[jp][pn]g")):
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        digest = hashlib.sha256(image.tobytes()).hexdigest()
        lines.append(f"decode {path.name} {image.width} {image.height} {digest}")
        if path.name in ("photo.jpg", "rgb.png", "tall.png", "dot.png"):
            for size in ((64, 32), (32, 64), (61, 96), (128, 43), (7, 5), (1, 1), (333, 2)):
                rows = image.resize((size[0], image.height), Image.Resampling.BICUBIC)
                resized = rows.resize(size, Image.Resampling.BICUBIC)
                lines.append(f"resize {path.name} {size[0]} {size[1]} {hashlib.sha256(resized.tobytes()).hexdigest()}")
    (HERE / "vectors.txt").write_text("\n".join(lines) + "\n")


main()
