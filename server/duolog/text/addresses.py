"""Web and mail addresses, file names and paths, said as a person would. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from duolog.text.aligned import AlignedText, Part

_EMAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+")
_URL = re.compile(r"(?:(?:https?|ftp|wss?)://|www\.)[^\s<>\"“”，。；！？（）]+", re.IGNORECASE)
_URL_TAIL = ".,;:!?)'*_]"
_HOST = re.compile(
    r"(?<![\w@./-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,4}(?:com|org|net|io|dev|ai|edu|gov|co|uk|de|fr|cn|jp|eu|app|info)"
    r"(?:/[\w%.~/-]*\w)?(?![\w@-])"
)
_FILE = re.compile(
    r"(?<![\w./-])(?P<name>[\w-]{1,60}(?:\.[\w-]{1,20}){0,2})\.(?P<kind>py|js|mjs|ts|tsx|jsx|json|ya?ml|toml|txt|md|csv|html?|css|pdf"
    r"|docx?|xlsx?|pptx?|zip|gz|sh|exe|png|jpe?g|gif|svg|mp3|mp4|wav|cpp|java|rs|go|rb|ini|cfg|log|env)(?!\w)"
)
_PATH = re.compile(r"(?<![\w./<])~?(?:/[\w.-]+){2,}/?|(?<![\w/])~/[\w.-]+")
_DOT = {"en": " dot ", "zh": "点"}
_AT = {"en": " at ", "zh": " at "}
_SLASH = {"en": " slash ", "zh": " 斜杠 "}


def addresses_in_words(text: AlignedText, language: str) -> AlignedText:
    """Mail and web addresses in every language; bare host names, files and paths where their words are known."""
    if "@" in text.text:
        text = text.sub(_EMAIL, lambda match: _mail(match, language))
    text = text.sub(_URL, lambda match: _url(match, language))
    if language not in _DOT or ("." not in text.text and "/" not in text.text):
        return text
    text = text.sub(_HOST, lambda match: _spelled(match.group(), language))
    text = text.sub(_FILE, lambda match: _spelled(match.group(), language))
    return text.sub(_PATH, lambda match: _spelled(match.group(), language).strip())


def _mail(match: re.Match[str], language: str) -> Part:
    name, host = match.group().split("@")
    return _spelled(name, language) + _AT.get(language, " at ") + _spelled(host, language)


def _spelled(address: str, language: str) -> str:
    spoken = address.replace(".", _DOT.get(language, " . ")).replace("/", _SLASH.get(language, " "))
    return spoken.replace("_", " ").replace("+", " plus " if language == "en" else " ").replace("~", " ")


def _url(match: re.Match[str], language: str) -> list[Part]:
    """The host's name; the path only where it is one short word. Punctuation after the address stays."""
    address = match.group().rstrip(_URL_TAIL)
    tail = (match.start() + len(address), match.end())
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        host = parts.hostname or ""
    except ValueError:
        return ["", tail]
    spoken = _spelled(host.removeprefix("www."), language)
    path = parts.path.strip("/")
    if language == "en" and path.isalpha() and len(path) <= 16:
        spoken += f" slash {path}"
    return [spoken, tail]
