"""Words after which more is to come, in English and Chinese (simplified and traditional): what Whisper writes."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLERS = _words("um uh er erm uhm hmm hm mm ehm eh umm uhh")
FILLER_PHRASES = ("you know", "i mean", "let me see", "let me think", "how do you say", "kind of like", "sort of like")
NEVER_LAST = _words(
    """a an the and or but nor because although though unless until whereas if whether while
    of than into onto upon among amongst via per between during towards toward against without within
    my your our their every whose very its i we they he she who which
    im youre theyre hes shes thats theres youll theyll youd theyd ive weve youve theyve lets gonna wanna
    gotta such"""
)
"""They never end a sentence."""
SELDOM_LAST = _words(
    """to for with from by at in on as about like after before since over under through around near
    is are was were am be been being has have had do does did will would can could should shall may might must
    that this these those some any no not so then also just only even really his her what when where why how
    more most less another other each both either neither please says said"""
)
"""They may end a sentence ("Where are you from?"): a sign only where the transcript has no sentence end."""

NEVER_LAST_ZH = tuple(
    _words(
        """因为 因為 所以 但是 可是 不过 不過 而且 并且 並且 如果 假如 虽然 雖然 由于 由於 为了 為了 关于 關於
        对于 對於 根据 根據 或者 还是 還是 还有 還有 以及 和 跟 与 與 或 把 被 从 從 比如 比如说 比如說
        例如 包括 非常 特别是 特別是 一个 一個 这个 這個 这种 這種 那种 那種 每个 每個 我想 我要 我觉得 我覺得
        我认为 我認為 请问 請問 请帮我 請幫我 作为 作為 通过 通過 随着 隨著 而 但 并 並"""
    )
)
FILLERS_ZH = tuple(_words("嗯 呃 额 額 那个 那個 就是 就是说 就是說 然后 然後 怎么说 怎麼說 我想想 让我想想 讓我想想"))

DIGITS = _words("zero oh one two three four five six seven eight nine")
DIGITS_ZH = frozenset("零〇一二三四五六七八九幺两")
REPEATS = {"double": 2, "triple": 3}
"""How many digits the word makes of the next one."""
