"""The class of lxml's elements, which lxml itself gives no public name."""

from lxml.etree import _Element

type Element = _Element
