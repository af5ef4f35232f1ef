"""Content coding that a client accepts (RFC 9110, 12.5.3)."""


def accepts_gzip(header: str) -> bool:
    """Whether `Accept-Encoding` names gzip, or else everything, with a weight above 0."""
    weights: dict[str, float] = {}
    for part in header.split(","):
        coding, *parameters = (text.strip().lower() for text in part.split(";"))
        weights.setdefault(coding, _weight(parameters))
    return next((weights[name] > 0 for name in ("gzip", "x-gzip", "*") if name in weights), False)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
