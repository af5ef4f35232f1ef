"""Tukey's fence: a component is anomalous above the third quartile of its peers by 3 interquartile ranges."""
