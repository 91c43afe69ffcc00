"""What is a text."""


def no_text(what: str, value: object) -> str | None:
    """Why a value is no text; None where it is one. `what` it is called.

    Example:
        >>> no_text("the text", None), no_text("the text", 3), no_text("the text", "")
        ('the text is null', 'the text is a number, not a string', None)
    """
    if value is None:
        return f"{what} is null"
    if not isinstance(value, str):
        return f"{what} is {_a(value)}, not a string"
    if value.isascii():
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"{what} holds half of a surrogate pair at character {error.start}"
    return None


def _a(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list"}
    return names.get(type(value), f"of type {type(value).__name__}")
