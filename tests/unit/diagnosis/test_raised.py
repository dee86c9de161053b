"""What the engines raise anywhere in their code is placed by class, file, moment and words.

No rule knows these places by name: the tables are a sample of all places where SGLang and vLLM
raise, taken at random, with the category that each means.
"""

from __future__ import annotations

import pytest

from console.diagnosis import diagnose
from tests.unit.diagnosis.raised import Place, places

FLOOR = 0.95


@pytest.mark.parametrize("place", places(), ids=str)
def test_the_place_that_raised_is_the_root(place: Place) -> None:
    root = diagnose(place.log).root
    assert root is not None
    assert root.type == place.type
    assert root.file is not None
    assert (root.file.endswith(place.file), root.line) == (True, place.line)


def test_what_was_raised_is_placed_in_its_category() -> None:
    wrong = [
        f"{place}: {found}, not {'/'.join(place.categories)}"
        for place in places()
        if (found := diagnose(place.log).category) not in place.categories
    ]
    print("\n".join(wrong))
    right = len(places()) - len(wrong)
    assert right >= FLOOR * len(places()), f"{right}/{len(places())}"
