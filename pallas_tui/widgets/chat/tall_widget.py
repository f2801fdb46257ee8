"""A widget that may have thousands of rows, of which few are seen."""

from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget


class TallWidget(Widget):
    """A widget in a scrolled one that is as high as its content. It keeps nothing for each of its rows."""

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        # It was just laid out: a new height is no reason to lay out the screen a second time.
        return super()._size_updated(size, virtual_size, container_size, layout=False)

    def _set_dirty(self, *regions: Region) -> None:
        super()._set_dirty(*regions)
        self._styles_cache.clear()  # else it has a number for each row

    def render_lines(self, crop: Region) -> list[Strip]:
        strips = super().render_lines(crop)
        self._styles_cache.clear()  # else each row that was ever seen stays in memory
        return strips
