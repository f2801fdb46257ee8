"""The class of lxml's elements, which lxml itself gives no public name."""

from lxml import etree

type Element = etree._Element
